//! The cache of compiled programs.

use super::Open;
use super::subject::{N, Subject, add, multiply, relu};
use super::verdict::{Stop, ensure, equal, refused, same_bits};
use crate::device::{BufferClass, Cq, DeviceError, MissPolicy, OpDesc, Operand, ProgramId};
use crate::tensor::{DType, Shape, View};

pub(super) fn one_description_is_one_program(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let none = subject.device.program_count();
    let first = subject.device.compile(&add()?)?;
    let other = subject.device.compile(&multiply()?)?;
    ensure(first != other, "two descriptions are one program")?;
    equal(
        "programs of two descriptions",
        &subject.device.program_count(),
        &(none + 2),
    )?;
    for _ in 0..3 {
        equal(
            "a description compiled again",
            &subject.device.compile(&add()?)?,
            &first,
        )?;
    }
    equal(
        "programs of two descriptions",
        &subject.device.program_count(),
        &(none + 2),
    )
}

pub(super) fn a_forbidden_compilation_names_the_operation(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let a = subject.filled(BufferClass::Input, &[2.0; N])?;
    let b = subject.buffer(BufferClass::Output)?;
    let known = subject.device.compile(&multiply()?)?;
    let programs = subject.device.program_count();
    subject.device.set_misses(MissPolicy::Forbid);
    match subject.device.compile(&add()?) {
        Err(DeviceError::CacheMissForbidden { op }) => ensure(
            op.to_lowercase().contains("add"),
            "the refusal of a compilation does not name the operation",
        )?,
        other => refused!("a forbidden compilation", other, CacheMissForbidden { .. }),
    }
    equal("programs after it", &subject.device.program_count(), &programs)?;
    equal("a known program", &subject.device.compile(&multiply()?)?, &known)?;
    subject.launch(Cq::COMPUTE, &multiply()?, &[a, a, b])?;
    same_bits("what it computes", &subject.read(Cq::COMPUTE, b)?, &[4.0; N])?;
    subject.device.set_misses(MissPolicy::Allow);
    subject.device.compile(&add()?)?;
    equal(
        "programs once it is allowed",
        &subject.device.program_count(),
        &(programs + 1),
    )
}

pub(super) fn a_capture_of_warm_work_compiles_nothing(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let a = subject.filled(BufferClass::Input, &[2.0; N])?;
    let b = subject.buffer(BufferClass::Output)?;
    let work = |subject: &mut Subject| {
        subject.launch(Cq::COMPUTE, &add()?, &[a, a, b])?;
        subject.launch(Cq::COMPUTE, &relu()?, &[b, b])
    };
    work(&mut subject)?;
    subject.drain()?;
    let programs = subject.device.program_count();
    subject.device.set_misses(MissPolicy::Forbid);
    let trace = subject.capture(Cq::COMPUTE, work)?;
    equal(
        "programs after the capture",
        &subject.device.program_count(),
        &programs,
    )?;
    subject.device.replay(Cq::COMPUTE, trace)?;
    subject.drain()?;
    equal(
        "programs after a replay",
        &subject.device.program_count(),
        &programs,
    )
}

pub(super) fn a_description_that_makes_no_sense_compiles_nothing(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let a = subject.filled(BufferClass::Input, &[1.0; N])?;
    subject.device.compile(&relu()?)?;
    let programs = subject.device.program_count();
    let vector = |elements: usize| -> Result<Operand, DeviceError> {
        Ok(Operand {
            dtype: DType::F32,
            view: View::contiguous(Shape::new(&[elements])?),
        })
    };
    let uneven = OpDesc::Copy {
        src: vector(N)?,
        dst: vector(N - 1)?,
    };
    refused!(
        "a copy between two shapes",
        subject.device.compile(&uneven),
        InvalidOp { .. }
    );
    equal("programs after it", &subject.device.program_count(), &programs)?;
    let unknown = subject.device.launch(Cq::COMPUTE, ProgramId(u64::MAX), &[a]);
    refused!("a launch of no program", unknown, UnknownProgram(_));
    same_bits("the buffer it named", &subject.read(Cq::COMPUTE, a)?, &[1.0; N])
}
