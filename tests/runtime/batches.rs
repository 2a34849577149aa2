//! Several frames in one replay: each gets the bits that it gets alone.

use crate::tiny;
use std::path::PathBuf;

use sensorium::device::{CpuConfig, CpuDevice, Device, HostSlot};
use sensorium::image::{Preset, PresetOptions, SampleType};
use sensorium::perception::{CameraSource, DeviceModel, FrameKey, HeadKind, ModelTrace, SubmitError};
use sensorium::trace::{Pending, TraceError, TraceOptions};

/// The tiny network on a device, for one frame, two and four.
struct Bench {
    device: CpuDevice,
    trace: ModelTrace,
}

impl Bench {
    /// `images` are those that the network's file takes.
    fn open(images: Option<i64>, options: PresetOptions) -> (Self, Vec<(usize, bool)>) {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| -> PathBuf { folder.path().join(name) };
        std::fs::write(path("n.onnx"), tiny::network_of_images(images)).unwrap();
        std::fs::write(path("labels"), tiny::LABELS.join("\n")).unwrap();
        let source = CameraSource {
            options,
            labels: Some(path("labels")),
            batch_sizes: vec![2, 4],
            ..CameraSource::new("squares", &path("n.onnx"), HeadKind::Yolox, Preset::YoloxOpencv)
        };
        let graph = source.load().unwrap().device;
        let config = CpuConfig {
            arena_bytes: 64 << 20,
            ..CpuConfig::default()
        };
        let mut device = CpuDevice::open(&config).unwrap();
        let mut trace = graph.build(&mut device, TraceOptions::two_queues()).unwrap();
        trace.capture(&mut device).unwrap();
        (Self { device, trace }, graph.batches())
    }

    /// Input of a frame: noise that differs from frame to frame.
    fn input(&mut self, frame: u32) -> HostSlot {
        let bytes = self.trace.input_specs()[0].bytes();
        let mut slot = self.device.host_slot(bytes).unwrap();
        let mut state = 0x9E37_79B9 ^ frame.wrapping_mul(0x85EB_CA6B);
        let value = bytes / (3 * tiny::SIDE * tiny::SIDE);
        for (index, byte) in slot.bytes_mut().unwrap()[..bytes].iter_mut().enumerate() {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Of floats the last byte is sign and exponent: values of pixels' size.
            let last = value > 1 && index % value == value - 1;
            *byte = if last { 0x42 } else { (state >> 24) as u8 };
        }
        slot
    }

    fn outputs(&mut self, pending: Pending, frames: usize) -> Vec<Vec<u8>> {
        let (device, trace) = (&mut self.device, &mut self.trace);
        trace.runner().0.wait(device, pending.done).unwrap();
        let bytes = trace.output_bytes();
        let read = |place: usize| {
            let mut slot = device.host_slot(bytes).unwrap();
            let read = trace.read_place(device, pending, place, &mut slot).unwrap();
            trace.runner().0.wait(device, read).unwrap();
            slot.bytes().unwrap()[..bytes].to_vec()
        };
        (0..frames).map(read).collect()
    }

    fn alone(&mut self, slot: &HostSlot) -> Vec<u8> {
        let key = FrameKey::default();
        let pending = self
            .trace
            .submit(&mut self.device, 0, [slot], &key)
            .unwrap()
            .pending;
        self.outputs(pending, 1).remove(0)
    }

    fn together(&mut self, slots: &[HostSlot]) -> Vec<Vec<u8>> {
        let frames = slots.iter().map(|slot| [slot]);
        let pending = self.trace.submit_batch(&mut self.device, frames).unwrap().pending;
        self.outputs(pending, slots.len())
    }
}

/// Frames in every number from 2 to 4, in turns with single ones, beside the same frames alone.
fn hold(images: Option<i64>, options: PresetOptions, joined: bool) {
    let (mut bench, batches) = Bench::open(images, options);
    assert_eq!(batches, [(2, joined), (4, joined)]);
    let inputs: Vec<HostSlot> = (0..12).map(|frame| bench.input(frame)).collect();
    let alone: Vec<Vec<u8>> = inputs.iter().map(|slot| bench.alone(slot)).collect();
    let different = alone.windows(2).all(|pair| pair[0] != pair[1]);
    assert!(different, "frames cannot be told apart by their outputs");
    for count in [2, 3, 4, 3, 2, 4] {
        for first in [0, 5, 8] {
            let found = bench.together(&inputs[first..first + count]);
            assert!(
                found == alone[first..first + count],
                "{count} frames from {first}"
            );
            assert!(
                bench.alone(&inputs[first]) == alone[first],
                "a single frame after {count}"
            );
        }
    }
}

#[test]
fn a_network_of_any_number_of_images_gives_each_the_bits_that_it_gets_alone() {
    hold(None, PresetOptions::DEPLOYED, true);
}

#[test]
fn so_does_one_that_reads_floats_which_the_device_makes_of_bytes_and_floats_as_they_are() {
    for samples in [SampleType::Bf16, SampleType::F32] {
        let options = PresetOptions {
            samples: Some(samples),
            ..PresetOptions::DEPLOYED
        };
        hold(None, options, true);
        hold(Some(1), options, false);
    }
}

#[test]
fn a_network_of_one_image_runs_on_one_frame_after_the_other() {
    hold(Some(1), PresetOptions::DEPLOYED, false);
}

#[test]
fn more_frames_than_the_largest_batch_are_refused_and_change_nothing() {
    let (mut bench, _) = Bench::open(None, PresetOptions::DEPLOYED);
    let inputs: Vec<HostSlot> = (0..5).map(|frame| bench.input(frame)).collect();
    let before = bench.alone(&inputs[0]);
    let frames = inputs.iter().map(|slot| [slot]);
    let refused = bench.trace.submit_batch(&mut bench.device, frames).unwrap_err();
    let SubmitError::Trace(TraceError::Unknown {
        runner, name, known, ..
    }) = refused
    else {
        panic!("{refused:?}")
    };
    assert_eq!(
        (&*runner, &*name, known),
        ("squares", "5", vec!["2".to_owned(), "4".to_owned()])
    );
    assert!(bench.alone(&inputs[0]) == before);
}

#[test]
fn releasing_gives_all_memory_back() {
    for images in [None, Some(1)] {
        let (mut bench, _) = Bench::open(images, PresetOptions::DEPLOYED);
        bench.trace.release(&mut bench.device).unwrap();
        assert_eq!(bench.device.memory().used_bytes, 0);
    }
}
