//! The host half: sweeps to points on pillars, heads to objects.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::params::call;
use super::{CenterPointError, CenterPointParams, ParamError};
use crate::lidar::{
    Box3d, CenterHeadDecode, CenterHeadParams, CenterHeads, ClassRemapper, DensifyConfig, EncoderInput,
    FeatureRows, Gates, HeadChannels, IouBevNmsParams, NmsWorkspace, ObjectRules, PillarGridSpec, PillarSet,
    PillarStats, PointLayout, RemapParams, RigidTransform, SlotFill, SlotHistory, StreamDensifiers,
    SweepPoints, YawRule, assign_pillars, canvas_gather_index, circle_nms, decorate, iou_bev_nms,
    sort_by_score, to_detected_objects,
};
use crate::outputs::{DetectedObjects, Detections, ObjectLabel};
use crate::perception::{
    CallParam, CallParams, HeadError, HostModel, Placement, PrepareError, PreparedFrame, Sensor, SensorData,
};

/// Buffers whose contents are remembered; a pipeline has a handful.
const MAX_BUFFERS: usize = 64;

/// What the host half has to know of the device half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLayout {
    /// Rows and columns of the heads.
    pub cells: [usize; 2],
    /// Values of one cell.
    pub columns: usize,
}

/// How points lie in the device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointRows {
    /// float32, as many values as the encoder takes: for networks out of ONNX.
    Dense,
    /// float32, 16 values a point: for networks of blocks.
    Wide32,
    /// The same in bfloat16.
    WideBf16,
}

/// How the host half of a CenterPoint is set up.
#[derive(Debug, Clone)]
pub struct CenterPointOptions {
    /// How points lie in the device's memory.
    pub rows: PointRows,
    /// What slots without a point hold: what the weights were trained with.
    pub fill: SlotFill,
    /// Seed of the choice of points where a pillar has more than it holds; `None` keeps the first ones.
    pub shuffle_seed: Option<u64>,
    /// Most streams whose earlier sweeps are kept.
    pub max_streams: usize,
    /// Numbers of pillars that have a variant, ascending.
    pub buckets: Vec<usize>,
}

/// A CenterPoint's host half, as Autoware's `lidar_centerpoint` node does it: densification, pillars and their
/// features; decoding, circle suppression, conversion, IoU suppression, class remapping. Shared by all workers.
#[derive(Debug)]
pub struct CenterPoint {
    name: Arc<str>,
    grid: PillarGridSpec,
    input: EncoderInput,
    options: CenterPointOptions,
    layout: HeadLayout,
    streams: Mutex<StreamDensifiers>,
    /// Parameters that may change, and what follows from them.
    tuning: Mutex<Arc<Tuning>>,
    workspaces: Mutex<Vec<Workspace>>,
    /// What the last frame left in each of the device's buffers, by their addresses.
    histories: Mutex<HashMap<usize, SlotHistory>>,
}

#[derive(Debug)]
struct Tuning {
    params: CenterPointParams,
    decode: CenterHeadDecode,
    circle_m: f32,
    iou: IouBevNmsParams,
    remapper: Option<ClassRemapper>,
    rules: ObjectRules,
}

/// Memory of one frame, used again by the next.
#[derive(Debug)]
struct Workspace {
    points: SweepPoints,
    pillars: PillarSet,
    boxes: Vec<Box3d>,
    nms: NmsWorkspace,
}

impl CenterPoint {
    /// A host half.
    ///
    /// # Errors
    /// [`CenterPointError`] for parameters that do not fit each other or the network.
    pub fn new(
        name: Arc<str>,
        params: CenterPointParams,
        options: CenterPointOptions,
        layout: HeadLayout,
    ) -> Result<Self, CenterPointError> {
        params.validate()?;
        let refuse = |key: &str, error: String| CenterPointError::unfit(key, error);
        let range = params.point_cloud_range_m.map(f64::from);
        let voxel = params.voxel_size_m.map(f64::from);
        let grid = PillarGridSpec::new(
            [range[0], range[1], range[2]],
            [range[3], range[4], range[5]],
            voxel,
        )
        .and_then(|grid| grid.with_max_pillars(params.max_voxels))
        .and_then(|grid| grid.with_max_points_per_pillar(params.max_points_per_voxel))
        .and_then(|grid| grid.with_cloud_capacity(params.cloud_capacity))
        .map_err(|error| refuse("point_cloud_range", error.to_string()))?;
        let input = EncoderInput::from_size(params.encoder_in_feature_size)
            .map_err(|error| refuse("encoder_in_feature_size", error.to_string()))?;
        let expected = [grid.grid_y(), grid.grid_x()].map(|cells| cells / params.downsample_factor);
        if layout.cells != expected {
            let [rows, columns] = layout.cells;
            let reason = format!(
                "the network has heads of {rows} x {columns} cells, range, voxels and downsample_factor make {} x {}",
                expected[0], expected[1]
            );
            return Err(refuse("downsample_factor", reason));
        }
        let densify = DensifyConfig {
            num_past_frames: params.num_past_frames,
            cloud_capacity: params.cloud_capacity,
            layout: match input.point_features() {
                5 => PointLayout::Xyzit,
                _ => PointLayout::Xyzt,
            },
        };
        Ok(Self {
            name,
            grid,
            input,
            layout,
            streams: Mutex::new(StreamDensifiers::new(densify).with_max_streams(options.max_streams)),
            options,
            tuning: Mutex::new(Arc::new(Tuning::new(params, layout)?)),
            workspaces: Mutex::new(Vec::new()),
            histories: Mutex::default(),
        })
    }

    /// The parameters as they are now.
    #[must_use]
    pub fn params(&self) -> CenterPointParams {
        self.tuning().params.clone()
    }

    /// Changes run-time parameters; frames that are decoded later follow them.
    ///
    /// # Errors
    /// Whatever `change` says, and [`CenterPointError`] for values that do not fit each other: nothing is changed then.
    pub fn tune(
        &self,
        change: impl FnOnce(&mut CenterPointParams) -> Result<(), ParamError>,
    ) -> Result<(), CenterPointError> {
        let mut tuning = self.tuning.lock().unwrap_or_else(PoisonError::into_inner);
        let mut params = tuning.params.clone();
        change(&mut params)?;
        params.validate()?;
        *tuning = Arc::new(Tuning::new(params, self.layout)?);
        Ok(())
    }

    fn tuning(&self) -> Arc<Tuning> {
        Arc::clone(&self.tuning.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn workspaces(&self) -> MutexGuard<'_, Vec<Workspace>> {
        self.workspaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn histories(&self) -> MutexGuard<'_, HashMap<usize, SlotHistory>> {
        let mut histories = self.histories.lock().unwrap_or_else(PoisonError::into_inner);
        if histories.len() >= MAX_BUFFERS {
            histories.clear();
        }
        histories
    }

    fn take_workspace(&self) -> Workspace {
        let spare = self.workspaces().pop();
        spare.unwrap_or_else(|| Workspace {
            points: SweepPoints::default(),
            pillars: PillarSet::new(self.grid),
            boxes: Vec::new(),
            nms: NmsWorkspace::default(),
        })
    }

    /// Densifies, groups and decorates; the number of pillars.
    fn fill(
        &self,
        data: &SensorData<'_>,
        inputs: &mut [&mut [u8]],
        workspace: &mut Workspace,
    ) -> Result<PillarStats, PrepareError> {
        let SensorData::Sweep(sweep) = data else {
            return Err(PrepareError::WrongSensor {
                expected: Sensor::Lidar,
            });
        };
        let pose = sweep.world_from_sensor.and_then(|m| {
            let rows = [
                [m[0], m[1], m[2], m[3]],
                [m[4], m[5], m[6], m[7]],
                [m[8], m[9], m[10], m[11]],
                [m[12], m[13], m[14], m[15]],
            ];
            RigidTransform::from_matrix(rows).ok()
        });
        {
            let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
            let densifier = streams.get(sweep.stream);
            let enqueued = densifier
                .enqueue(&sweep.points, sweep.stamp_ns, pose.as_ref())
                .map_err(|error| PrepareError::Cloud(error.to_string()))?;
            if !enqueued.is_cached() {
                return Err(PrepareError::NoPose {
                    stamp_ns: sweep.stamp_ns,
                });
            }
            densifier.sweep_points(&mut workspace.points);
        }
        assign_pillars(
            &workspace.points.columns(),
            self.options.shuffle_seed,
            &mut workspace.pillars,
        );
        let [points, index] = inputs else {
            return Err(PrepareError::InputLength {
                input: inputs.len(),
                expected: 2,
                found: inputs.len(),
            });
        };
        // Taken out while the buffer is written: should that fail, the next frame clears all of it.
        let address = points.as_ptr().addr();
        let mut history = self.histories().remove(&address).unwrap_or_default();
        let rows = match self.options.rows {
            PointRows::Dense => FeatureRows::Dense(bytemuck::cast_slice_mut(points)),
            PointRows::Wide32 => FeatureRows::Device32(bytemuck::cast_slice_mut(points)),
            PointRows::WideBf16 => FeatureRows::DeviceBf16(bytemuck::cast_slice_mut(points)),
        };
        let cloud = |error: String| PrepareError::Cloud(error);
        let Workspace { pillars, .. } = workspace;
        decorate(pillars, self.input, rows, self.options.fill, Some(&mut history))
            .map_err(|error| cloud(error.to_string()))?;
        self.histories().insert(address, history);
        let index: &mut [u32] = bytemuck::cast_slice_mut(index);
        canvas_gather_index(
            workspace.pillars.coords(),
            &self.grid,
            self.grid.max_pillars() as u32,
            index,
        )
        .map_err(|error| cloud(error.to_string()))?;
        Ok(workspace.pillars.stats())
    }
}

impl Tuning {
    fn new(params: CenterPointParams, layout: HeadLayout) -> Result<Self, CenterPointError> {
        let refuse = |key: &str, error: String| CenterPointError::unfit(key, error);
        let classes = params.class_names.len();
        let scores: Vec<f64> = params.score_thresholds.concat();
        let gates = Gates::new(
            classes,
            &params.distance_bin_upper_limits_m,
            &scores,
            &params.yaw_norm_thresholds,
        )
        .map_err(|error| refuse("detection_score_thresholds", error.to_string()))?;
        let [x, y, _] = params.voxel_size_m.map(f64::from);
        let head = CenterHeadParams {
            voxel_size_m: [x, y],
            range_min_m: [0, 1].map(|axis| f64::from(params.point_cloud_range_m[axis])),
            downsample_factor: params.downsample_factor,
            grid: [layout.cells[1], layout.cells[0]],
            has_variance: params.has_variance,
            has_twist: params.has_twist,
        };
        let decode = CenterHeadDecode::new(&head, gates)
            .map_err(|error| refuse("downsample_factor", error.to_string()))?;
        let iou = IouBevNmsParams::new(params.iou_nms_search_distance_m, params.iou_nms_threshold)
            .map_err(|error| refuse("iou_nms_threshold", error.to_string()))?;
        let remapper = params.remapper.as_ref().map(|remapper| {
            ClassRemapper::new(&RemapParams {
                allow_remapping_by_area_matrix: remapper.allow.clone(),
                min_area_matrix: remapper.min_area_m2.clone(),
                max_area_matrix: remapper.max_area_m2.clone(),
            })
            .map_err(|error| refuse("allow_remapping_by_area_matrix", error.to_string()))
        });
        Ok(Self {
            circle_m: params.circle_nms_dist_threshold_m as f32,
            rules: ObjectRules::new(&params.class_names, YawRule::CenterPoint, params.has_twist),
            remapper: remapper.transpose()?,
            decode,
            iou,
            params,
        })
    }
}

impl HostModel for CenterPoint {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn sensor(&self) -> Sensor {
        Sensor::Lidar
    }

    fn labels(&self) -> Vec<String> {
        ObjectLabel::ALL
            .iter()
            .map(|label| label.name().to_owned())
            .collect()
    }

    fn past_sweeps(&self) -> usize {
        self.params().num_past_frames
    }

    fn forget(&self, stream: &str) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.forget(stream);
    }

    fn prepare(
        &self,
        data: &SensorData<'_>,
        inputs: &mut [&mut [u8]],
    ) -> Result<PreparedFrame, PrepareError> {
        let mut workspace = self.take_workspace();
        let filled = self.fill(data, inputs, &mut workspace);
        let pillars = workspace.pillars.len();
        self.workspaces().push(workspace);
        let stats = filled?;
        if stats.over_pillars + stats.over_capacity > 0 {
            tracing::debug!(model = %self.name, ?stats, "points beyond the capacity were left out");
        }
        let buckets = &self.options.buckets;
        let variant = buckets.iter().position(|&most| pillars <= most);
        Ok(PreparedFrame {
            variant: variant.unwrap_or(buckets.len().saturating_sub(1)),
            placement: Placement::Sensor,
            within_capacity: Some(stats.over_pillars == 0),
            planned: None,
        })
    }

    fn finish(
        &self,
        output: &[f32],
        placement: &Placement,
        frame_id: &Arc<str>,
    ) -> Result<Detections, HeadError> {
        self.decode(output, placement, frame_id, &self.tuning())
    }

    fn call_params(&self) -> Vec<CallParam> {
        call::declared(&self.tuning().params)
    }

    fn finish_with(
        &self,
        output: &[f32],
        placement: &Placement,
        frame_id: &Arc<str>,
        params: &CallParams,
    ) -> Result<Detections, HeadError> {
        if params.is_empty() {
            return self.finish(output, placement, frame_id);
        }
        let refused = |error: &dyn std::fmt::Display| HeadError::Params(error.to_string());
        let changed = call::changed(&self.tuning().params, params).map_err(|error| refused(&error))?;
        let tuning = Tuning::new(changed, self.layout).map_err(|error| refused(&error))?;
        self.decode(output, placement, frame_id, &tuning)
    }
}

impl CenterPoint {
    /// Decodes the network's output with some parameters.
    fn decode(
        &self,
        output: &[f32],
        placement: &Placement,
        frame_id: &Arc<str>,
        tuning: &Tuning,
    ) -> Result<Detections, HeadError> {
        let Placement::Sensor = placement else {
            return Err(HeadError::Placement);
        };
        let HeadLayout { cells, columns } = self.layout;
        let channels = HeadChannels::centerpoint(tuning.params.class_names.len(), tuning.params.has_variance);
        let length = |_| HeadError::Length {
            expected: cells[0] * cells[1] * columns,
            found: output.len(),
        };
        let heads =
            CenterHeads::packed_rows(output, columns, channels, cells[0] * cells[1]).map_err(length)?;
        let mut workspace = self.take_workspace();
        let Workspace { boxes, nms, .. } = &mut workspace;
        boxes.clear();
        let decoded = tuning.decode.decode(&heads, boxes);
        let mut objects = Vec::new();
        if decoded.is_ok() {
            sort_by_score(boxes);
            circle_nms(boxes, tuning.circle_m, nms);
            to_detected_objects(boxes, &tuning.rules, &mut objects);
            iou_bev_nms(&mut objects, &tuning.iou, nms);
            if let Some(remapper) = &tuning.remapper {
                remapper.apply(&mut objects);
            }
        }
        self.workspaces().push(workspace);
        let counts = decoded.map_err(length)?;
        if counts.non_finite > 0 {
            tracing::warn!(model = %self.name, cells = counts.non_finite, "the network's output holds values that are no numbers");
        }
        Ok(Detections::Objects(DetectedObjects {
            objects,
            model: Arc::clone(&self.name),
            frame_id: Arc::clone(frame_id),
        }))
    }
}
