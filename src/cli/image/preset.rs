//! `sensorium image preset`: one preset on one or several pictures.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::ValueHint;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use half::bf16;
use miette::{IntoDiagnostic, WrapErr, miette};
use ndarray::Array4;
use ndarray_npy::{WritableElement, write_npy};

use super::view::Picture;
use crate::cli::report;
use crate::image::{
    ChannelOrder, Contraction, Image, Layout, Preset, PresetOptions, PresetPlan, SampleType, TensorForm,
    Workspace, scale_intrinsics,
};

/// Makes the input of a network from a picture, as a deployed node would.
///
/// A .npy file holds the input as it is, with a first axis for the pictures; brain floats are written as the float32 of
/// the same value. A .png file shows it: bytes as they are, floats stretched from the least to the largest.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium image preset meteor front.jpg front.png
  sensorium image preset yolox_opencv front.jpg front.npy --size 416x416 --layout chw --type fp32
  sensorium image preset bevformer front.jpg front_left.jpg front_right.jpg cameras.npy --threads 2")]
pub(super) struct Args {
    /// The preset; `sensorium image presets` lists them.
    preset: String,
    /// Pictures to read (.jpg, .png), and last the file to write (.npy or .png).
    #[arg(required = true, num_args = 2.., value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Size of the network's input, where it is not the preset's own.
    #[arg(long, value_name = "WxH", value_parser = super::size)]
    size: Option<[usize; 2]>,
    /// Order of the axes, where it is not the preset's own.
    #[arg(long, value_parser = one_of(Layout::ALL, Layout::name))]
    layout: Option<Layout>,
    /// Type of the values, where it is not the preset's own.
    #[arg(long = "type", value_parser = one_of(SampleType::ALL, SampleType::name))]
    samples: Option<SampleType>,
    /// Order of the channels, where it is not the preset's own.
    #[arg(long, value_parser = one_of(ChannelOrder::ALL, ChannelOrder::name))]
    order: Option<ChannelOrder>,
    /// How float blends are rounded, where it is not the preset's own.
    #[arg(long, value_parser = one_of(Contraction::ALL, Contraction::name))]
    contraction: Option<Contraction>,
    /// Pixels of the resized picture for each of the picture, where a preset has that as a parameter.
    #[arg(long)]
    scale: Option<f32>,
    /// Threads to work on.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// Focal lengths and principal point of the picture, to be brought to the input.
    #[arg(
        long,
        value_name = "FX,FY,CX,CY",
        value_delimiter = ',',
        num_args = 1,
        allow_negative_numbers = true
    )]
    intrinsics: Vec<f64>,
}

impl Args {
    const fn options(&self) -> PresetOptions {
        PresetOptions {
            target_px: self.size,
            layout: self.layout,
            samples: self.samples,
            order: self.order,
            contraction: self.contraction,
            scale: match self.scale {
                Some(scale) => Some([scale; 2]),
                None => None,
            },
        }
    }
}

/// Takes the name of one of `all`.
fn one_of<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [T; N],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.map(name)).try_map(move |word| {
        let found = all.into_iter().find(|&value| name(value) == word);
        found.ok_or("no such word")
    })
}

/// Runs the command.
///
/// # Errors
/// Files that cannot be read or written, and presets that cannot do what is asked of them.
pub(super) fn run(args: &Args) -> miette::Result<ExitCode> {
    let preset = Preset::from_name(&args.preset).into_diagnostic()?;
    let Some((output, inputs)) = args.files.split_last() else {
        return Err(miette!("no file to write is named"));
    };
    let to_npy = match output.extension().and_then(|e| e.to_str()) {
        Some("npy") => true,
        Some("png") => false,
        _ => {
            return Err(miette!(
                "{}: the file to write ends in .npy or .png",
                output.display()
            ));
        }
    };
    if !to_npy && inputs.len() > 1 {
        return Err(miette!(
            "{} would hold one picture of {}; take .npy",
            output.display(),
            inputs.len()
        ));
    }
    if !matches!(args.intrinsics.len(), 0 | 4) {
        return Err(miette!("--intrinsics takes four numbers: fx,fy,cx,cy"));
    }
    let images = inputs
        .iter()
        .map(|path| super::read(path))
        .collect::<miette::Result<Vec<_>>>()?;
    let mut workspaces = vec![Workspace::default(); args.threads.into()];
    let mut made: Vec<(PresetPlan, Vec<f32>)> = Vec::new();
    let mut text = String::new();
    for (path, image) in inputs.iter().zip(&images) {
        let (plan, input) = prepare(preset, args, path, image, &mut workspaces, &mut text)?;
        if let Some((first, _)) = made.first()
            && first.form() != plan.form()
        {
            return Err(miette!(
                "{} makes an input of another size than {}",
                path.display(),
                inputs[0].display()
            ));
        }
        made.push((plan, input));
    }
    let Some((plan, first)) = made.first() else {
        return Err(miette!("no picture to read is named"));
    };
    if to_npy {
        write_array(
            output,
            plan.form(),
            made.iter()
                .map(|(_, input)| bytemuck::cast_slice(input))
                .collect(),
        )?;
    } else {
        let picture = Picture::of(plan.form(), bytemuck::cast_slice(first)).into_diagnostic()?;
        super::write(output, &picture.png().into_diagnostic()?)?;
    }
    report::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The input for one picture, in memory that suits floats, and a line about it.
fn prepare(
    preset: Preset,
    args: &Args,
    path: &Path,
    image: &Image,
    workspaces: &mut [Workspace],
    text: &mut String,
) -> miette::Result<(PresetPlan, Vec<f32>)> {
    let source_px = [image.width(), image.height()];
    let plan = PresetPlan::new(preset, source_px, &args.options())
        .into_diagnostic()
        .wrap_err_with(|| format!("{} on {}", preset.name(), path.display()))?;
    let bytes = plan.form().bytes();
    let mut input = vec![0_f32; bytes.div_ceil(size_of::<f32>())];
    let out = &mut bytemuck::cast_slice_mut(&mut input)[..bytes];
    let mut apply = || plan.apply(&image.view(), out, workspaces).into_diagnostic();
    apply()?;
    let start = Instant::now();
    apply()?;
    let took = start.elapsed();
    let geometry = plan.geometry();
    let [[width, height], [tw, th], [cw, ch]] = [source_px, geometry.target_px, geometry.content_px];
    let form = plan.form();
    let _ = writeln!(
        text,
        "{}: {width} x {height} px to {tw} x {th} px ({cw} x {ch} of it the picture), {} {} {}, {:.2} ms",
        path.display(),
        form.samples.name(),
        form.layout.name(),
        form.order.name(),
        took.as_secs_f64() * 1e3,
    );
    if let [fx, fy, cx, cy] = args.intrinsics[..] {
        let matrix = [fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0];
        let [fx, _, cx, _, fy, cy, ..] = scale_intrinsics(&matrix, &geometry);
        let _ = writeln!(text, "  fx {fx} fy {fy} cx {cx} cy {cy}");
    }
    Ok((plan, input))
}

/// All inputs as one array.
fn write_array(path: &Path, form: TensorForm, inputs: Vec<&[u8]>) -> miette::Result<()> {
    let bytes = form.bytes();
    let all = || inputs.iter().flat_map(|input| &input[..bytes]).copied();
    match form.samples {
        SampleType::U8 => write_as(path, form, inputs.len(), all().collect()),
        SampleType::Bf16 | SampleType::F32 => {
            let raw: Vec<u8> = all().collect();
            let floats: Vec<f32> = match form.samples {
                SampleType::Bf16 => raw
                    .as_chunks()
                    .0
                    .iter()
                    .map(|&pair| bf16::from_ne_bytes(pair).to_f32())
                    .collect(),
                _ => raw
                    .as_chunks()
                    .0
                    .iter()
                    .map(|&four| f32::from_ne_bytes(four))
                    .collect(),
            };
            write_as(path, form, inputs.len(), floats)
        }
    }
}

fn write_as<T: WritableElement>(
    path: &Path,
    form: TensorForm,
    count: usize,
    values: Vec<T>,
) -> miette::Result<()> {
    let [a, b, c] = form.dims();
    let array = Array4::from_shape_vec((count, a, b, c), values).into_diagnostic()?;
    write_npy(path, &array)
        .into_diagnostic()
        .wrap_err_with(|| format!("{} cannot be written", path.display()))
}
