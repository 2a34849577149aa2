//! `sensorium check --vehicle`: what would run on a vehicle, what it needs, and whether it fits.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;

use comfy_table::{CellAlignment, Table};
use miette::{IntoDiagnostic, MietteDiagnostic, Report, Severity};
use serde_json::json;

use super::check::summary;
use super::pipeline_args::Format;
use super::report;
use crate::device::DeviceLayer;
use crate::io::tf::Transform;
use crate::pipeline::{Mount, Problem, Vehicle, VehicleSensor, VehicleSensorKind};
use crate::runtime::{Budget, Footprint};

const MIB: f64 = 1_048_576.0;

/// Tells what a vehicle needs; `with_models`: its models are put on the device for it.
///
/// # Errors
/// A model or a device that cannot be opened.
pub(super) fn run(
    vehicle: &Vehicle,
    environment: &DeviceLayer,
    format: Format,
    with_models: bool,
) -> miette::Result<ExitCode> {
    // Without weights there is nothing that could be put on a device.
    let complete = vehicle
        .pipeline
        .models
        .values()
        .all(|model| model.weights.is_some() || model.family.is_seeded());
    let footprint = if with_models && complete {
        let measured = Footprint::measure(&vehicle.pipeline, environment);
        Some(measured.map_err(super::run::explain)?)
    } else {
        None
    };
    let budget = Budget::new(vehicle, footprint);
    match format {
        Format::Text => {
            for problem in vehicle.pipeline.warnings.iter().chain(&vehicle.pipeline.missing) {
                report::show(&Report::new(problem.clone()));
            }
            report::print(&text(vehicle, environment, &budget))?;
            for finding in &budget.findings {
                let severity = if finding.is_error {
                    Severity::Error
                } else {
                    Severity::Warning
                };
                let told = MietteDiagnostic::new(finding.message.clone());
                report::show(&Report::new(
                    told.with_severity(severity).with_help(finding.help.clone()),
                ));
            }
        }
        Format::Json => {
            let problems = [vehicle.pipeline.warnings.as_slice(), &vehicle.pipeline.missing].concat();
            let document = json!({
                "ok": budget.fits(),
                "vehicle": vehicle,
                "device": vehicle.pipeline.device.config(environment),
                "plan": vehicle.pipeline.plan(),
                "budget": budget,
                "problems": problems.iter().map(Problem::to_record).collect::<Vec<_>>(),
            });
            report::print(&serde_json::to_string_pretty(&document).into_diagnostic()?)?;
        }
    }
    Ok(if budget.fits() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn text(vehicle: &Vehicle, environment: &DeviceLayer, budget: &Budget) -> String {
    let mut text = summary(&vehicle.pipeline, environment);
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{:<9}{}: {}, sensors {}, id {}",
        "vehicle", vehicle.name, vehicle.vehicle_model, vehicle.sensor_model, vehicle.vehicle_id
    );
    for file in &vehicle.calibration {
        let _ = writeln!(text, "{:<9}{}", "placed", file.display());
    }
    let _ = writeln!(text, "\n{}", sensors(vehicle));
    let _ = writeln!(text, "\n{}", detectors(budget));
    let _ = writeln!(text, "\n{}", needs(vehicle, budget));
    text
}

fn sensors(vehicle: &Vehicle) -> Table {
    let mut table = report::table();
    table.set_header([
        "sensor",
        "topic",
        "frame",
        "at x, y, z (m)",
        "sends",
        "Hz",
        "MB/s",
        "taken by",
    ]);
    for sensor in &vehicle.sensors {
        let place = place(&vehicle.pipeline.mounts, &vehicle.base_frame, &sensor.frame);
        let place = place.map_or_else(|| "-".to_owned(), |[x, y, z]| format!("{x:.2}, {y:.2}, {z:.2}"));
        let takers = vehicle
            .streams
            .iter()
            .filter(|stream| stream.sensor == sensor.name);
        let takers: Vec<&str> = takers.map(|stream| stream.detector.as_str()).collect();
        table.add_row([
            sensor.name.clone(),
            sensor.topic.clone(),
            sensor.frame.clone(),
            place,
            sends(sensor),
            sensor.rate_hz.to_string(),
            format!("{:.1}", sensor.bytes_per_s() / 1e6),
            if takers.is_empty() {
                "-".to_owned()
            } else {
                takers.join(", ")
            },
        ]);
    }
    right(&mut table, &[5, 6]);
    table
}

fn sends(sensor: &VehicleSensor) -> String {
    match &sensor.kind {
        VehicleSensorKind::Camera {
            width_px,
            height_px,
            encoding,
            intrinsics,
        } => {
            let calibrated = if intrinsics.is_some() { ", calibrated" } else { "" };
            format!("{width_px} x {height_px} {encoding}{calibrated}")
        }
        VehicleSensorKind::Lidar { points, point_bytes } => format!("{points} points of {point_bytes} bytes"),
    }
}

/// Where the origin of a frame is in the vehicle's.
fn place(mounts: &[Mount], base: &str, frame: &str) -> Option<[f64; 3]> {
    let by_child: BTreeMap<&str, &Mount> = mounts.iter().map(|mount| (mount.child.as_str(), mount)).collect();
    let mut here = frame;
    let mut found = Transform::IDENTITY;
    // No way is longer than there are transforms.
    for _ in 0..=mounts.len() {
        if here == base {
            return Some(found.translation);
        }
        let mount = by_child.get(here)?;
        let up = Transform {
            translation: mount.translation_m,
            rotation: mount.rotation,
        };
        found = up.after(&found);
        here = &mount.parent;
    }
    None
}

fn detectors(budget: &Budget) -> Table {
    let mut table = report::table();
    table.set_header([
        "detector",
        "model",
        "streams",
        "room",
        "frames/s",
        "ms a frame",
        "device MiB",
        "upload MB/s",
    ]);
    for load in &budget.detectors {
        let footprint = budget.footprint.as_ref();
        let model = footprint.and_then(|it| it.models.iter().find(|model| model.detector == load.detector));
        let dash = || "-".to_owned();
        table.add_row([
            load.detector.clone(),
            load.model.clone(),
            load.streams.to_string(),
            load.max_streams.to_string(),
            format!("{:.1}", load.frames_per_s),
            load.expected_ms.map_or_else(dash, |ms| ms.to_string()),
            model.map_or_else(dash, |model| format!("{:.1}", model.device_bytes as f64 / MIB)),
            model.map_or_else(dash, |model| {
                format!("{:.1}", model.input_bytes as f64 * load.frames_per_s / 1e6)
            }),
        ]);
    }
    right(&mut table, &[2, 3, 4, 5, 6, 7]);
    table
}

fn needs(vehicle: &Vehicle, budget: &Budget) -> Table {
    let mut table = report::table();
    table.set_header(["what", "needed", "there"]);
    let mib = |bytes: f64| format!("{:.1} MiB", bytes / MIB);
    let rate = |bytes: f64| format!("{:.1} MB/s", bytes / 1e6);
    let unknown = || "not known".to_owned();
    let dash = String::new;
    let footprint = budget.footprint.as_ref();
    table.add_row([
        "device memory, enough".to_owned(),
        footprint.map_or_else(unknown, |it| mib(it.enough_bytes as f64)),
        footprint.map_or_else(dash, |it| mib(it.arena_bytes as f64)),
    ]);
    table.add_row([
        "device memory, held".to_owned(),
        footprint.map_or_else(unknown, |it| mib(it.used_bytes as f64)),
        dash(),
    ]);
    table.add_row([
        "traces".to_owned(),
        footprint.map_or_else(unknown, |it| mib(it.trace_bytes as f64)),
        footprint.map_or_else(dash, |it| mib(it.trace_region_bytes as f64)),
    ]);
    table.add_row([
        "messages under way, at most".to_owned(),
        mib(budget.queue_bytes as f64),
        mib(f64::from(vehicle.limits.host_mib) * MIB),
    ]);
    table.add_row([
        "inputs and outputs under way".to_owned(),
        budget.slot_bytes.map_or_else(unknown, |bytes| mib(bytes as f64)),
        dash(),
    ]);
    table.add_row(["from sensors".to_owned(), rate(budget.sensor_bytes_per_s), dash()]);
    table.add_row([
        "to the device".to_owned(),
        budget.upload_bytes_per_s.map_or_else(unknown, rate),
        dash(),
    ]);
    table.add_row([
        "through memory".to_owned(),
        rate(budget.memory_bytes_per_s),
        rate(vehicle.limits.memory_gb_s * 1e9),
    ]);
    table.add_row([
        "time of the device".to_owned(),
        budget
            .device_load
            .map_or_else(unknown, |load| format!("{:.1} %", load * 100.0)),
        "100 %".to_owned(),
    ]);
    right(&mut table, &[1, 2]);
    table
}

fn right(table: &mut Table, columns: &[usize]) {
    for &column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}
