//! Running one kernel, and a model of buffers in plain f64 to compare with.

use half::bf16;
use sensorium::device::cpu::kernels::{BufferRef, Isa, KernelSet, prepare};
use sensorium::device::cpu::pool::ComputePool;
use sensorium::device::{OpDesc, Operand};
use sensorium::tensor::{DType, HostTensor, Shape, TensorSpec, View};

/// A small generator of repeatable pseudo-random numbers (splitmix64).
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `low..=high`.
    pub(crate) fn range(&mut self, low: usize, high: usize) -> usize {
        low + (self.bits() % (high - low + 1) as u64) as usize
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.range(0, choices.len() - 1)]
    }

    /// A number in -1..1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// Every instruction set of this machine.
pub(crate) fn isas() -> Vec<Isa> {
    [Isa::Scalar, Isa::Avx2, Isa::Avx512]
        .into_iter()
        .filter(|isa| isa.is_available())
        .collect()
}

/// Runs an operation on buffers with the given number of threads.
pub(crate) fn run(op: &OpDesc, set: impl Into<KernelSet>, threads: usize, buffers: &mut [HostTensor]) {
    run_bound(
        op,
        set.into(),
        threads,
        &buffers.iter_mut().map(bind).collect::<Vec<_>>(),
    );
}

/// Runs an operation whose bindings are one and the same buffer.
pub(crate) fn run_in_place(op: &OpDesc, isa: Isa, threads: usize, buffer: &mut HostTensor, bindings: usize) {
    run_bound(op, isa.into(), threads, &vec![bind(buffer); bindings]);
}

fn bind(tensor: &mut HostTensor) -> BufferRef {
    let bytes = tensor.bytes_mut();
    BufferRef {
        ptr: bytes.as_mut_ptr(),
        bytes: bytes.len(),
    }
}

fn run_bound(op: &OpDesc, set: KernelSet, threads: usize, buffers: &[BufferRef]) {
    let kernel = prepare(op, set).unwrap();
    let mut pool = ComputePool::new(threads);
    pool.reserve_scratch(kernel.scratch_bytes());
    assert_eq!(kernel.required_bytes().len(), buffers.len());
    for (buffer, &required) in buffers.iter().zip(kernel.required_bytes()) {
        assert!(
            buffer.bytes >= required,
            "{} bytes bound, {required} required",
            buffer.bytes
        );
    }
    // SAFETY: the buffers are alive, aligned and large enough (just checked), and nobody else uses them.
    unsafe { kernel.run(buffers, &pool) };
}

/// Runs an operation on every instruction set and with 1, 2 and 3 threads; all must leave the same bits in
/// the buffer `output`. `buffers` makes the buffers for an instruction set.
pub(crate) fn run_everywhere(
    op: &OpDesc,
    output: usize,
    buffers: impl Fn(Isa) -> Vec<HostTensor>,
) -> HostTensor {
    let sets: Vec<KernelSet> = isas().into_iter().map(KernelSet::from).collect();
    run_on(&sets, op, output, |set| buffers(set.isa))
}

/// As [`run_everywhere`], on these kernel sets.
pub(crate) fn run_on(
    sets: &[KernelSet],
    op: &OpDesc,
    output: usize,
    buffers: impl Fn(KernelSet) -> Vec<HostTensor>,
) -> HostTensor {
    let mut first: Option<HostTensor> = None;
    for &set in sets {
        for threads in 1..=3 {
            let mut bound = buffers(set);
            run(op, set, threads, &mut bound);
            let result = bound.swap_remove(output);
            match &first {
                None => first = Some(result),
                Some(first) => assert!(
                    same_bits(first, &result),
                    "{set} with {threads} threads differ from {}: {op:?}",
                    sets[0]
                ),
            }
        }
    }
    first.unwrap()
}

/// Bitwise equality, all NaN being one.
fn same_bits(a: &HostTensor, b: &HostTensor) -> bool {
    a.bytes() == b.bytes()
        || values(a)
            .iter()
            .zip(values(b))
            .all(|(x, y)| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan())
}

/// A buffer of random values with `len` elements.
pub(crate) fn random(random_source: &mut Random, dtype: DType, len: usize, scale: f32) -> HostTensor {
    let numbers: Vec<f32> = (0..len).map(|_| random_source.unit() * scale).collect();
    tensor(dtype, &numbers)
}

/// A one-dimensional buffer of these values, rounded to the type.
pub(crate) fn tensor(dtype: DType, numbers: &[f32]) -> HostTensor {
    let len = [numbers.len()];
    match dtype {
        DType::F32 => HostTensor::from_slice(&len, numbers).unwrap(),
        DType::Bf16 => {
            let short: Vec<bf16> = numbers.iter().map(|&x| bf16::from_f32(x)).collect();
            HostTensor::from_slice(&len, &short).unwrap()
        }
        other => panic!("no buffers of {other}"),
    }
}

/// All elements of a float buffer.
pub(crate) fn values(tensor: &HostTensor) -> Vec<f64> {
    match tensor.dtype() {
        DType::F32 => tensor
            .as_slice::<f32>()
            .unwrap()
            .iter()
            .map(|&x| x.into())
            .collect(),
        DType::Bf16 => tensor
            .as_slice::<bf16>()
            .unwrap()
            .iter()
            .map(|x| x.to_f64())
            .collect(),
        other => panic!("no values of {other}"),
    }
}

pub(crate) fn zeros(dtype: DType, len: usize) -> HostTensor {
    HostTensor::zeros(TensorSpec::new(&[len], dtype).unwrap())
}

/// A channels-last operand with a pitch and channel offset, and the elements its buffer needs.
pub(crate) fn image(dtype: DType, dims: [usize; 4], pitch: usize, channel: usize) -> (Operand, usize) {
    let view = View::channels_last(dims, pitch, channel).unwrap();
    let [n, _, h, w] = dims;
    (Operand { dtype, view }, n * h * w * pitch)
}

/// A row-major operand.
pub(crate) fn dense(dtype: DType, dims: &[usize]) -> Operand {
    Operand {
        dtype,
        view: View::contiguous(Shape::new(dims).unwrap()),
    }
}

/// Element index of a position, straight from the definition of a view.
pub(crate) fn element(view: &View, index: &[usize]) -> usize {
    let steps = index.iter().zip(view.steps()).map(|(&i, &s)| i as isize * s);
    (view.offset as isize + steps.sum::<isize>()) as usize
}

/// Every position of a shape, row-major.
pub(crate) fn positions(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![vec![]], |all, &dim| {
        all.iter()
            .flat_map(|head| {
                (0..dim).map(move |i| {
                    let mut position = head.clone();
                    position.push(i);
                    position
                })
            })
            .collect()
    })
}

/// Distance of two fp32 values in units of the last place of the exact one.
pub(crate) fn ulps(found: f32, exact: f64) -> f64 {
    let nearest = exact as f32;
    let exponent = nearest.abs().max(f32::MIN_POSITIVE).log2().floor() as i32;
    (f64::from(found) - exact).abs() / 2_f64.powi(exponent - 23)
}
