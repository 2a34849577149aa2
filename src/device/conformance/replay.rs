//! Replays: what they compute, and when they are refused.

use super::Open;
use super::graphs::{Graph, networks, window};
use super::subject::{N, Random, Subject, add, fill, floats, multiply, relu};
use super::verdict::{Stop, ensure, equal, fail, refused, same_bits};
use crate::device::{
    Activation, BinaryKind, BufferClass, BufferId, Conv2dDesc, Cq, DeviceError, PoolKind, ResidualOrder,
    Scalar, TraceId,
};
use crate::precision::Math;

/// What an operation makes of two numbers.
type Formula = fn(f32, f32) -> f32;

pub(super) fn operations_compute_their_formulas_on_whole_numbers(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let mut random = Random::new(1);
    let mut graph = Graph::new("formulas");
    let dims = [4, 6];
    let (a, b) = (
        graph.input(&mut subject, &dims)?,
        graph.input(&mut subject, &dims)?,
    );
    let (left, right) = (random.wholes(24), random.wholes(24));
    let pairs = || left.iter().copied().zip(right.iter().copied());
    let mut expected: Vec<f32> = Vec::new();

    let kinds: [(BinaryKind, Formula); 5] = [
        (BinaryKind::Add, |a, b| a + b),
        (BinaryKind::Sub, |a, b| a - b),
        (BinaryKind::Mul, |a, b| a * b),
        (BinaryKind::Max, f32::max),
        (BinaryKind::Min, f32::min),
    ];
    for (kind, formula) in kinds {
        let out = graph.output(&mut subject, &dims)?;
        graph.binary(kind, a, b, out);
        expected.extend(pairs().map(|(a, b)| formula(a, b)));
    }
    let out = graph.output(&mut subject, &dims)?;
    graph.unary(Activation::Relu, a, out);
    expected.extend(left.iter().map(|&a| a.max(0.0)));
    let out = graph.output(&mut subject, &dims)?;
    let clip = Activation::Clip {
        low: Scalar::new(-2.0),
        high: Scalar::new(3.0),
    };
    graph.unary(clip, a, out);
    expected.extend(left.iter().map(|&a| a.clamp(-2.0, 3.0)));
    let out = graph.output(&mut subject, &[6, 4])?;
    graph.copy(a.transposed(&[1, 0])?, out);
    expected.extend((0..24).map(|i| left[i % 4 * 6 + i / 4]));
    let out = graph.output(&mut subject, &[5])?;
    graph.fill(out, 2.5);
    expected.extend([2.5; 5]);
    let out = graph.output(&mut subject, &[4, 3])?;
    graph.gather(1, &[5, 0, 5], a, out);
    expected.extend((0..4).flat_map(|row| [5, 0, 5].map(|column| left[row * 6 + column])));
    windows(&mut subject, &mut graph, &mut random, &mut expected)?;

    subject.write(Cq::COMPUTE, a.buffer, &left)?;
    subject.write(Cq::COMPUTE, b.buffer, &right)?;
    graph.launch(&mut subject, Cq::COMPUTE)?;
    let results = graph.results(&mut subject, Cq::COMPUTE)?;
    same_bits("operations on whole numbers", &results, &expected)
}

/// Convolution, pooling and resizing of an image of whole numbers, `[2 channels, 5 rows, 4 columns]`.
fn windows(
    subject: &mut Subject,
    graph: &mut Graph,
    random: &mut Random,
    expected: &mut Vec<f32>,
) -> Result<(), DeviceError> {
    let (channels, rows, columns, filters) = (2, 5, 4, 3);
    let pixels = random.wholes(channels * rows * columns);
    let image = graph
        .input(subject, &[pixels.len()])?
        .as_image([1, channels, rows, columns])?;
    graph.inputs.pop();
    subject.write(Cq::COMPUTE, image.buffer, &pixels)?;
    let pixel = |channel: usize, y: isize, x: isize| {
        let inside = (0..rows as isize).contains(&y) && (0..columns as isize).contains(&x);
        inside.then(|| pixels[(y as usize * columns + x as usize) * channels + channel])
    };
    let around = |y: usize, x: usize| {
        (0..9).map(move |tap| {
            (
                tap,
                y as isize + tap as isize / 3 - 1,
                x as isize + tap as isize % 3 - 1,
            )
        })
    };

    let (weight, bias) = (random.wholes(filters * channels * 9), random.wholes(filters));
    let out = graph
        .output(subject, &[rows * columns * filters])?
        .as_image([1, filters, rows, columns])?;
    let desc = Conv2dDesc {
        input: image.operand,
        output: out.operand,
        residual: None,
        residual_order: ResidualOrder::AfterActivation,
        geometry: window(3, 1, 1),
        groups: 1,
        activation: Activation::Relu,
        math: Math::Native,
    };
    graph.conv(subject, desc, &weight, &bias, [image, out], None)?;
    for (y, x) in positions(rows, columns) {
        for filter in 0..filters {
            let mut sum = bias[filter];
            for channel in 0..channels {
                for (tap, ty, tx) in around(y, x) {
                    let weight = weight[(filter * channels + channel) * 9 + tap];
                    sum += weight * pixel(channel, ty, tx).unwrap_or(0.0);
                }
            }
            expected.push(sum.max(0.0));
        }
    }
    let out = graph
        .output(subject, &[rows * columns * channels])?
        .as_image([1, channels, rows, columns])?;
    graph.pool(PoolKind::Max, window(3, 1, 1), image, out);
    for (y, x) in positions(rows, columns) {
        for channel in 0..channels {
            let taps = around(y, x).filter_map(|(_, ty, tx)| pixel(channel, ty, tx));
            expected.push(taps.fold(f32::NEG_INFINITY, f32::max));
        }
    }
    let out = graph
        .output(subject, &[2 * columns * channels])?
        .as_image([1, channels, 2, columns])?;
    graph.resize(&[4, 1], &[0, 1, 1, 3], image, out);
    for y in [4, 1] {
        for x in [0, 1, 1, 3] {
            expected.extend((0..channels).map(|channel| pixels[(y * columns + x) * channels + channel]));
        }
    }
    Ok(())
}

fn positions(rows: usize, columns: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..rows).flat_map(move |y| (0..columns).map(move |x| (y, x)))
}

pub(super) fn a_replay_equals_the_eager_run_bit_for_bit(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let graphs = networks(&mut subject)?;
    let mut random = Random::new(2);
    // Everything is warm before the first capture.
    for graph in &graphs {
        graph.feed(&mut subject, Cq::COMPUTE, &mut random)?;
        graph.launch(&mut subject, Cq::COMPUTE)?;
    }
    subject.drain()?;
    let mut traces = Vec::new();
    for graph in &graphs {
        traces.push(subject.capture(Cq::COMPUTE, |subject| graph.launch(subject, Cq::COMPUTE))?);
    }
    for _ in 0..3 {
        for (graph, &trace) in graphs.iter().zip(&traces) {
            graph.feed(&mut subject, Cq::COMPUTE, &mut random)?;
            graph.launch(&mut subject, Cq::COMPUTE)?;
            let eager = graph.results(&mut subject, Cq::COMPUTE)?;
            ensure(
                eager.iter().any(|value| *value != 0.0),
                "a network of fractions computes zeros only",
            )?;
            graph.spoil(&mut subject, Cq::COMPUTE)?;
            subject.device.replay(Cq::COMPUTE, trace)?;
            let replayed = graph.results(&mut subject, Cq::COMPUTE)?;
            same_bits(graph.name, &replayed, &eager)?;
        }
    }
    Ok(())
}

pub(super) fn two_traces_play_ping_pong(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let one = subject.filled(BufferClass::Input, &[1.0; N])?;
    let states = [1.0, 0.0].map(|value| subject.filled(BufferClass::State, &[value; N]));
    let [even, odd] = states;
    let (even, odd) = (even?, odd?);
    let mut traces = Vec::new();
    for (from, to) in [(even, odd), (odd, even)] {
        subject.device.compile(&add()?)?;
        traces.push(subject.capture(Cq::COMPUTE, |subject| {
            // to = 2 * from + 1
            subject.launch(Cq::COMPUTE, &add()?, &[from, from, to])?;
            subject.launch(Cq::COMPUTE, &add()?, &[to, one, to])
        })?);
    }
    let mut value = 1.0_f32;
    for step in 0..10 {
        subject.device.replay(Cq::COMPUTE, traces[step % 2])?;
        value = 2.0 * value + 1.0;
        let state = [odd, even][step % 2];
        let what = format!("the state after step {step}");
        same_bits(&what, &subject.read(Cq::COMPUTE, state)?, &[value; N])?;
    }
    Ok(())
}

pub(super) fn a_replay_allocates_nothing(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let (_, b, trace) = with_temporary(&mut subject)?;
    let (memory, programs) = (subject.device.memory(), subject.device.program_count());
    for _ in 0..10 {
        subject.device.replay(Cq::COMPUTE, trace)?;
    }
    subject.drain()?;
    equal("memory after replays", &subject.device.memory(), &memory)?;
    equal(
        "programs after replays",
        &subject.device.program_count(),
        &programs,
    )?;
    same_bits("what they make", &subject.read(Cq::COMPUTE, b)?, &[6.0; N])
}

/// A trace `b = (a + a) + a` with an intermediate that its capture freed, and `a`, all 2.
pub(super) fn with_temporary(subject: &mut Subject) -> Result<(BufferId, BufferId, TraceId), DeviceError> {
    let a = subject.filled(BufferClass::Input, &[2.0; N])?;
    let b = subject.filled(BufferClass::Output, &[0.0; N])?;
    subject.device.compile(&add()?)?;
    let trace = subject.capture(Cq::COMPUTE, |subject| {
        let temporary = subject.device.alloc(&floats(N)?, BufferClass::Intermediate)?;
        subject.launch(Cq::COMPUTE, &add()?, &[a, a, temporary])?;
        subject.launch(Cq::COMPUTE, &add()?, &[temporary, a, b])?;
        subject.device.free(temporary)
    })?;
    Ok((a, b, trace))
}

pub(super) fn a_replay_is_refused_while_a_later_buffer_is_alive(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let (_, b, trace) = with_temporary(&mut subject)?;
    ensure(
        subject.device.unsafe_live(trace)?.is_empty(),
        "something is unsafe right after the capture",
    )?;
    for class in [
        BufferClass::Input,
        BufferClass::Output,
        BufferClass::Intermediate,
        BufferClass::Bank,
    ] {
        let late = subject.buffer(class)?;
        let live = subject.device.unsafe_live(trace)?;
        equal(
            "buffers that a replay could overwrite",
            &live.buffers,
            &vec![late],
        )?;
        match subject.device.replay(Cq::COMPUTE, trace) {
            Err(DeviceError::UnsafeReplay {
                trace: told,
                live: told_live,
            }) => {
                equal("the refused trace", &told, &trace)?;
                equal("what stands in its way", &*told_live, &live)?;
            }
            other => {
                return Err(fail(format!(
                    "a replay while a buffer of class {class:?} made after the capture is alive: {other:?}"
                )));
            }
        }
        subject.drain()?;
        same_bits(
            "the output of a refused replay",
            &subject.read(Cq::COMPUTE, b)?,
            &[0.0; N],
        )?;
        subject.device.free(late)?;
    }
    ensure(
        subject.device.unsafe_live(trace)?.is_empty(),
        "something is unsafe after all later buffers were freed",
    )?;
    subject.device.replay(Cq::COMPUTE, trace)?;
    same_bits(
        "the replay once they are freed",
        &subject.read(Cq::COMPUTE, b)?,
        &[6.0; N],
    )
}

pub(super) fn an_acknowledged_buffer_does_not_stop_a_replay(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let (_, b, trace) = with_temporary(&mut subject)?;
    let known = subject.buffer(BufferClass::Output)?;
    subject.device.acknowledge(known)?;
    ensure(
        subject.device.unsafe_live(trace)?.is_empty(),
        "an acknowledged buffer still counts as unsafe",
    )?;
    subject.device.replay(Cq::COMPUTE, trace)?;
    same_bits("the replay", &subject.read(Cq::COMPUTE, b)?, &[6.0; N])?;
    // The next one is not acknowledged by it.
    let other = subject.buffer(BufferClass::Output)?;
    let refusal = subject.device.replay(Cq::COMPUTE, trace);
    refused!("a replay with a second buffer", refusal, UnsafeReplay { .. });
    subject.device.free(other)?;
    let gone = subject.device.acknowledge(other);
    refused!("acknowledging a freed buffer", gone, UnknownBuffer(_));
    subject.device.replay(Cq::COMPUTE, trace)?;
    Ok(())
}

pub(super) fn a_replay_is_refused_after_a_later_program(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let (a, b, trace) = with_temporary(&mut subject)?;
    subject.device.compile(&multiply()?)?;
    let live = subject.device.unsafe_live(trace)?;
    equal("programs that a replay could overwrite", &live.programs.len(), &1)?;
    let refusal = subject.device.replay(Cq::COMPUTE, trace);
    refused!("a replay after a later program", refusal, UnsafeReplay { .. });
    subject.drain()?;
    same_bits(
        "the output of a refused replay",
        &subject.read(Cq::COMPUTE, b)?,
        &[0.0; N],
    )?;
    // Captured again, the program lies before the capture.
    subject.device.release_trace(trace)?;
    let again = subject.capture(Cq::COMPUTE, |subject| {
        subject.launch(Cq::COMPUTE, &multiply()?, &[a, a, b])
    })?;
    subject.device.replay(Cq::COMPUTE, again)?;
    same_bits(
        "the trace captured again",
        &subject.read(Cq::COMPUTE, b)?,
        &[4.0; N],
    )?;
    for op in [fill(0.0)?, relu()?] {
        subject.device.compile(&op)?;
    }
    equal(
        "programs later than the second capture",
        &subject.device.unsafe_live(again)?.programs.len(),
        &2,
    )
}
