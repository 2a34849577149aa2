//! What a variant's function sees.

use smallvec::{SmallVec, smallvec};

use super::error::variant_text;
use super::tables::{State, Tables};
use super::taps::{TapPoint, read_strided};
use super::{Phase, Taps, TraceError};
use crate::device::{Cq, Device};
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::{Layout, TensorSpec};

/// Handed to a variant's function at warm-up, capture and eager runs: the persistent tensors by name, and
/// the operations. There is no host transfer in here, for a trace cannot contain one, and nothing can be registered:
/// persistent tensors exist before any trace.
#[derive(Debug)]
pub struct TraceContext<'a> {
    ops: OpContext<'a>,
    tables: &'a Tables,
    runner: &'a str,
    variant: &'a str,
    phase: Phase,
    capturing: bool,
    touched: Touched,
    taps: Option<TapPoint<'a>>,
}

/// What a function wrote.
#[derive(Debug)]
pub(super) struct Touched {
    /// Persistent outputs that it asked for or wrote.
    pub(super) outputs: SmallVec<[usize; 4]>,
    /// One a state.
    states: SmallVec<[StateTouch; 4]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum StateTouch {
    Untouched,
    /// The write target was handed out.
    Taken,
    Written,
}

impl Touched {
    /// Whether the ping-pong states change places.
    ///
    /// # Errors
    /// The names of those that were written, or whose write target was taken, and of those that were not written, if there
    /// are both.
    pub(super) fn steps(&self, states: &[State]) -> Result<bool, [Vec<String>; 2]> {
        let pingpong = || {
            let both = states.iter().zip(&self.states);
            both.filter(|(state, _)| state.options.pingpong)
        };
        if pingpong().all(|(_, &touch)| touch == StateTouch::Untouched) {
            return Ok(false);
        }
        if pingpong().all(|(_, &touch)| touch == StateTouch::Written) {
            return Ok(true);
        }
        let names = |wanted: fn(StateTouch) -> bool| {
            pingpong()
                .filter(|&(_, &touch)| wanted(touch))
                .map(|(state, _)| state.name.clone())
                .collect()
        };
        Err([
            names(|touch| touch != StateTouch::Untouched),
            names(|touch| touch != StateTouch::Written),
        ])
    }
}

impl<'a> TraceContext<'a> {
    pub(super) fn new(
        device: &'a mut dyn Device,
        tables: &'a Tables,
        [runner, variant]: [&'a str; 2],
        phase: Phase,
        capturing: bool,
        taps: Option<&'a mut dyn Taps>,
    ) -> Self {
        Self {
            ops: OpContext::new(device, Cq::COMPUTE),
            tables,
            runner,
            variant,
            phase,
            capturing,
            touched: Touched {
                outputs: SmallVec::new(),
                states: smallvec![StateTouch::Untouched; tables.states.len()],
            },
            taps: taps.map(|taps| TapPoint {
                taps,
                scope: String::new(),
            }),
        }
    }

    pub(super) fn finish(self) -> Touched {
        self.touched
    }

    /// The operations.
    pub fn ops(&mut self) -> &mut OpContext<'a> {
        &mut self.ops
    }

    /// An input.
    ///
    /// # Errors
    /// [`TraceError::Unknown`] naming the inputs that exist.
    pub fn input(&self, name: &str) -> Result<DeviceTensor, TraceError> {
        let names = self.tables.inputs.iter().map(|input| &*input.name);
        let index = self.find("input", name, names)?;
        Ok(self.tables.inputs[index].tensor)
    }

    /// A run-time parameter.
    ///
    /// # Errors
    /// [`TraceError::Unknown`] naming the parameters that exist.
    pub fn param(&self, name: &str) -> Result<DeviceTensor, TraceError> {
        let names = self.tables.params.iter().map(|param| &*param.name);
        let index = self.find("parameter", name, names)?;
        Ok(self.tables.params[index].tensor)
    }

    /// The persistent output to write in this phase.
    ///
    /// # Errors
    /// [`TraceError::Unknown`] naming the outputs that exist.
    pub fn output(&mut self, name: &str) -> Result<DeviceTensor, TraceError> {
        let index = self.find_output(name)?;
        if !self.touched.outputs.contains(&index) {
            self.touched.outputs.push(index);
        }
        Ok(self.tables.outputs[index].sets[self.phase.output].tensor)
    }

    /// The state as the last replay left it. A ping-pong state keeps this value until the end of the replay, an in-place
    /// state until it is written.
    ///
    /// # Errors
    /// [`TraceError::Unknown`] naming the states that exist.
    pub fn state(&self, name: &str) -> Result<DeviceTensor, TraceError> {
        let index = self.find_state(name)?;
        Ok(self.tables.states[index].read(self.phase))
    }

    /// The buffer that takes the state's next value, to compute straight into it. Then say so with
    /// [`TraceContext::write_state`], which records no copy for it.
    ///
    /// # Errors
    /// [`TraceError::Unknown`] naming the states that exist.
    pub fn write_target(&mut self, name: &str) -> Result<DeviceTensor, TraceError> {
        let index = self.find_state(name)?;
        let touch = &mut self.touched.states[index];
        if *touch == StateTouch::Untouched {
            *touch = StateTouch::Taken;
        }
        Ok(self.tables.states[index].write_target(self.phase))
    }

    /// Makes `value` the state's next value: a copy that is part of the trace, or nothing if the value is the
    /// [`TraceContext::write_target`].
    ///
    /// # Errors
    /// [`TraceError::Unknown`]; [`TraceError::WrongTensor`] for another shape or type; [`TraceError::Overlap`];
    /// [`TraceError::Write`].
    pub fn write_state(&mut self, name: &str, value: &DeviceTensor) -> Result<(), TraceError> {
        let index = self.find_state(name)?;
        let state = &self.tables.states[index];
        let (target, spec) = (state.write_target(self.phase), state.spec);
        self.write("state", name, &spec, &target, value)?;
        self.touched.states[index] = StateTouch::Written;
        Ok(())
    }

    /// Copies `value` into a persistent output as part of the trace (nothing to copy if it is the output itself) and
    /// returns the output.
    ///
    /// # Errors
    /// As [`TraceContext::write_state`].
    pub fn write_output(&mut self, name: &str, value: &DeviceTensor) -> Result<DeviceTensor, TraceError> {
        let target = self.output(name)?;
        let spec = self.tables.outputs[self.find_output(name)?].spec;
        self.write("output", name, &spec, &target, value)?;
        Ok(target)
    }

    /// Shows a value to the taps of the runner, if it has any and they want it: in an eager run the value is waited for and
    /// read at once, so that it may be overwritten afterwards. Otherwise this does nothing and costs nothing.
    ///
    /// # Errors
    /// [`TraceError::TapInCapture`] for a value that is wanted while launches are recorded; [`TraceError::Tap`] if it cannot
    /// be read, or the taps refuse it.
    pub fn tap(&mut self, name: &str, value: &DeviceTensor) -> Result<(), TraceError> {
        let Some(point) = &mut self.taps else {
            return Ok(());
        };
        let name = format!("{}{name}", point.scope);
        if !point.taps.wants(&name) {
            return Ok(());
        }
        let [runner, variant] = [self.runner, self.variant].map(str::to_owned);
        if self.capturing {
            return Err(TraceError::TapInCapture {
                runner,
                variant,
                name,
            });
        }
        let read = read_strided(&mut self.ops, value);
        let taken = read.and_then(|value| point.taps.take(&name, value));
        taken.map_err(|source| TraceError::Tap {
            runner,
            variant,
            name,
            source,
        })
    }

    /// Runs a part of the function whose taps carry `prefix.` before their names.
    pub fn scope<T>(&mut self, prefix: &str, part: impl FnOnce(&mut Self) -> T) -> T {
        let Some(point) = &mut self.taps else {
            return part(self);
        };
        let outside = point.scope.len();
        point.scope.push_str(prefix);
        point.scope.push('.');
        let result = part(self);
        if let Some(point) = &mut self.taps {
            point.scope.truncate(outside);
        }
        result
    }

    /// Name of the variant.
    #[must_use]
    pub const fn variant(&self) -> &str {
        self.variant
    }

    /// Which outputs are written, and which buffers of the states are read.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether launches are being recorded rather than run.
    #[must_use]
    pub const fn capturing(&self) -> bool {
        self.capturing
    }

    fn write(
        &mut self,
        kind: &'static str,
        name: &str,
        spec: &TensorSpec,
        target: &DeviceTensor,
        value: &DeviceTensor,
    ) -> Result<(), TraceError> {
        let found = TensorSpec {
            shape: value.view.shape,
            dtype: value.dtype,
            layout: Layout::default(),
        };
        if found != *spec {
            return Err(TraceError::WrongTensor {
                runner: self.runner.into(),
                variant: self.variant.into(),
                kind,
                name: name.into(),
                specs: Box::new([*spec, found]),
            });
        }
        if value.buffer == target.buffer {
            if value.view.is_contiguous() && value.view.offset == 0 {
                return Ok(());
            }
            return Err(TraceError::Overlap {
                runner: self.runner.into(),
                variant: self.variant.into(),
                kind,
                name: name.into(),
            });
        }
        let copied = self.ops.copy(value, target);
        copied.map_err(|source| TraceError::Write {
            runner: self.runner.into(),
            variant: self.variant.into(),
            kind,
            name: name.into(),
            source: Box::new(source),
        })
    }

    fn find_state(&self, name: &str) -> Result<usize, TraceError> {
        self.find("state", name, self.tables.states.iter().map(|state| &*state.name))
    }

    fn find_output(&self, name: &str) -> Result<usize, TraceError> {
        self.find(
            "output",
            name,
            self.tables.outputs.iter().map(|output| &*output.name),
        )
    }

    fn find<'n>(
        &self,
        kind: &'static str,
        name: &str,
        names: impl Iterator<Item = &'n str> + Clone,
    ) -> Result<usize, TraceError> {
        names
            .clone()
            .position(|known| known == name)
            .ok_or_else(|| TraceError::Unknown {
                runner: variant_text(self.runner, self.variant),
                kind,
                name: name.into(),
                known: names.map(str::to_owned).collect(),
            })
    }
}
