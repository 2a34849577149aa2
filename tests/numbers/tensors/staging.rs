//! Staging buffers.

use std::sync::{Arc, Condvar, Mutex};

use half::bf16;
use ndarray::ArrayViewMutD;
use sensorium::device::{BufferClass, Cq, Device};
use sensorium::ops::{DeviceTensor, HostStaging, OpContext, StagingError};
use sensorium::tensor::{CastError, DType, Element, Layout};
use sensorium::trace::{TraceOptions, TraceRunner, VariantFn};

use crate::tensors::{open, read, spec};

fn written<T: Element>(staging: &HostStaging) -> Vec<T> {
    bytemuck::cast_slice(staging.slot().unwrap().bytes().unwrap()).to_vec()
}

#[test]
fn what_is_written_in_place_is_what_the_trace_sees() {
    let mut device = open(2);
    let mut runner = TraceRunner::new("test", TraceOptions::two_queues()).unwrap();
    let dims = [2, 3, 5];
    let x = runner
        .add_input(&mut device, "x", spec(&dims, DType::Bf16), None)
        .unwrap();
    let widen: VariantFn = Box::new(|context| {
        let x = context.input("x")?;
        let wide = context.ops().to_f32(&x)?;
        Ok(vec![("wide".into(), wide)])
    });
    let variant = runner.add_variant(&mut device, "default", widen).unwrap();
    runner.capture(&mut device).unwrap();
    let mut staging = HostStaging::new(&mut device, spec(&dims, DType::Bf16), 2).unwrap();
    assert_eq!(
        (staging.count(), staging.spec().shape[2], staging.slot().is_none()),
        (2, 5, true)
    );
    let mut output = device.host_slot(30 * 4).unwrap();
    for frame in 0..20_usize {
        let value = |i: usize, j: usize, k: usize| (frame + 100 * i + 10 * j + k) as f32;
        let slot = if frame % 2 == 0 {
            let fill = |mut view: ArrayViewMutD<'_, bf16>| {
                assert_eq!(view.shape(), dims);
                for (at, place) in view.indexed_iter_mut() {
                    *place = bf16::from_f32(value(at[0], at[1], at[2]));
                }
            };
            staging.write_with(fill).unwrap()
        } else {
            let values: Vec<f32> = (0..30).map(|n| value(n / 15, n / 5 % 3, n % 5)).collect();
            staging.write(&values).unwrap()
        };
        let pending = runner.run(&mut device, variant, &[(x, slot)]).unwrap();
        let done = runner.read(&mut device, pending, 0, &mut output).unwrap();
        runner.wait(&mut device, done).unwrap();
        let seen: &[f32] = bytemuck::cast_slice(output.bytes().unwrap());
        for (n, &seen) in seen.iter().enumerate() {
            let expected = bf16::from_f32(value(n / 15, n / 5 % 3, n % 5)).to_f32();
            assert_eq!(seen, expected, "frame {frame}, element {n}");
        }
    }
}

#[test]
fn writes_take_the_slots_in_turn_and_never_one_that_is_on_loan() {
    let mut device = open(1);
    let wide = spec(&[4], DType::F32);
    let buffer = device.alloc(&wide, BufferClass::Input).unwrap();
    let mut staging = HostStaging::new(&mut device, wide, 2).unwrap();
    let first = staging.write(&[1.0_f32; 4]).unwrap().bytes().unwrap().as_ptr();
    let second = staging.write(&[2.0_f32; 4]).unwrap().bytes().unwrap().as_ptr();
    assert_ne!(first, second);
    assert_eq!(
        staging.write(&[3.0_f32; 4]).unwrap().bytes().unwrap().as_ptr(),
        first
    );
    staging.write(&[4.0_f32; 4]).unwrap();
    // The queue stops behind the next event, so that what comes after it stays on loan.
    let gate = Arc::new(Gate::default());
    let at_event = Arc::clone(&gate);
    device.set_completion_hook(Arc::new(move || at_event.pass()));
    device.record_event(Cq::COMPUTE).unwrap();
    let slot = staging.slot().unwrap();
    device.write(Cq::COMPUTE, buffer, 0, slot, slot.len()).unwrap();
    staging.write(&[5.0_f32; 4]).unwrap();
    assert!(staging.is_busy());
    let refused = staging.write(&[6.0_f32; 4]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "staging slot 1 of 2 still belongs to the device: wait for the event recorded after its upload, or open the \
         staging buffer with more slots"
    );
    let refused = staging.write_with(|_: ArrayViewMutD<'_, f32>| panic!("not called"));
    assert!(matches!(refused, Err(StagingError::OnLoan { slot: 1, count: 2 })));
    assert_eq!(written::<f32>(&staging), [5.0; 4]);
    gate.open();
    let whole = DeviceTensor::whole(buffer, &wide);
    assert_eq!(
        read::<f32>(&mut OpContext::new(&mut device, Cq::COMPUTE), &whole),
        [4.0; 4]
    );
    assert!(!staging.is_busy());
    staging.write(&[6.0_f32; 4]).unwrap();
    assert_eq!(written::<f32>(&staging), [6.0; 4]);
}

/// Holds whoever passes until it is opened.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        let guard = self.is_open.lock().unwrap();
        drop(self.opened.wait_while(guard, |is_open| !*is_open).unwrap());
    }

    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

#[test]
fn a_write_converts_to_the_type_of_the_buffer() {
    let mut device = open(1);
    let mut short = HostStaging::new(&mut device, spec(&[4], DType::Bf16), 1).unwrap();
    let values = [1.0_f32 + 1.0 / 256.0, 1.0 + 3.0 / 256.0, -0.1, f32::MAX];
    short.write(&values).unwrap();
    // Ties to even: 1 + 2^-8 goes down, 1 + 3 * 2^-8 goes up.
    let expected = [
        bf16::ONE,
        bf16::from_bits(0x3F82),
        bf16::from_bits(0xBDCD),
        bf16::INFINITY,
    ];
    assert_eq!(written::<bf16>(&short), expected);
    let mut indices = HostStaging::new(&mut device, spec(&[3], DType::U32), 1).unwrap();
    indices
        .write(&[(1_i64 << 24) + 1, i64::from(u32::MAX), 0])
        .unwrap();
    assert_eq!(written::<u32>(&indices), [(1 << 24) + 1, u32::MAX, 0]);
    indices.write(&[7_u32, 8, 9]).unwrap();
    assert_eq!(written::<u32>(&indices), [7, 8, 9]);
}

#[test]
fn a_refused_write_leaves_the_one_before_it() {
    let mut device = open(1);
    let mut staging = HostStaging::new(&mut device, spec(&[3], DType::U8), 1).unwrap();
    staging.write(&[1_u8, 2, 3]).unwrap();
    let refused = staging.write(&[9_i64, 8, 256]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "staging uint8 [3]: element 2 is 256 (int64), which uint8 cannot hold: clamp the values first or choose a wider \
         type"
    );
    let refused = staging.write(&[9_u8, 8]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "staging uint8 [3]: 2 values were given for 3 places"
    );
    let StagingError::Values { source, .. } = refused else {
        panic!("{refused}")
    };
    assert_eq!(
        *source,
        CastError::Length {
            expected: 3,
            found: 2
        }
    );
    let refused = staging
        .write_with(|_: ArrayViewMutD<'_, i8>| panic!("not called"))
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the staging buffer holds uint8, not int8; only write() converts"
    );
    assert_eq!(written::<u8>(&staging), [1, 2, 3]);
    // A tensor that is half written is none.
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = staging.write_with(|mut view: ArrayViewMutD<'_, u8>| {
            view[0] = 9;
            panic!("half way");
        });
    }));
    assert!(panicked.is_err() && staging.slot().is_none());
    staging.write(&[4_u8, 5, 6]).unwrap();
    assert_eq!(written::<u8>(&staging), [4, 5, 6]);
    let none = HostStaging::new(&mut device, spec(&[3], DType::U8), 0);
    assert!(matches!(none, Err(StagingError::NoSlots)));
    let tiled = spec(&[3], DType::U8).with_layout(Layout::Tile).unwrap();
    assert!(matches!(
        HostStaging::new(&mut device, tiled, 1),
        Err(StagingError::Layout(Layout::Tile))
    ));
}
