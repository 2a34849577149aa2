//! Phases: which set of outputs a replay writes, and which buffers of the ping-pong states it reads.

/// One trace of a variant is captured for each phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Phase {
    /// Set of persistent outputs that is written: 0, or 1 for every other replay where there are two sets.
    pub output: usize,
    /// Buffer of the ping-pong states that is read; the other one is written. Always 0 without such states.
    pub state: usize,
}

/// How many phases there are, and whose turn it is.
#[derive(Debug, Clone)]
pub(super) struct Phases {
    outputs: usize,
    states: usize,
    next: Phase,
}

impl Phases {
    pub(super) fn new(outputs: usize) -> Self {
        Self {
            outputs,
            states: 1,
            next: Phase::default(),
        }
    }

    /// There is a ping-pong state now: every variant needs a trace in each direction.
    pub(super) fn ping_pong(&mut self) {
        self.states = 2;
    }

    /// Traces of one variant.
    pub(super) const fn count(&self) -> usize {
        self.outputs * self.states
    }

    /// Number of output sets, number of state phases.
    pub(super) const fn counts(&self) -> [usize; 2] {
        [self.outputs, self.states]
    }

    /// Every phase, in the order of [`Phases::index`].
    pub(super) fn all(&self) -> impl Iterator<Item = Phase> + use<> {
        let states = self.states;
        (0..self.count()).map(move |index| Phase {
            output: index / states,
            state: index % states,
        })
    }

    /// Place of a phase's trace among the traces of a variant.
    pub(super) const fn index(&self, phase: Phase) -> usize {
        phase.output * self.states + phase.state
    }

    /// Phase of the next replay.
    pub(super) const fn next(&self) -> Phase {
        self.next
    }

    /// Somebody holds the outputs of a replay, so the next one writes the other set.
    pub(super) const fn outputs_taken(&mut self) {
        self.next.output = (self.next.output + 1) % self.outputs;
    }

    /// The ping-pong states were written, so the buffers change places.
    pub(super) const fn stepped(&mut self, stepping: bool) {
        if stepping {
            self.next.state = (self.next.state + 1) % self.states;
        }
    }

    /// States start again from their first buffer.
    pub(super) const fn restart_states(&mut self) {
        self.next.state = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_has_its_own_place() {
        let mut phases = Phases::new(2);
        assert_eq!(phases.count(), 2);
        phases.ping_pong();
        let indices: Vec<_> = phases.all().map(|phase| phases.index(phase)).collect();
        assert_eq!(indices, [0, 1, 2, 3]);
    }

    #[test]
    fn outputs_alternate_with_every_replay_and_states_with_every_step() {
        let mut phases = Phases::new(2);
        phases.ping_pong();
        let mut seen = Vec::new();
        for stepping in [true, false, false, true, true] {
            let Phase { output, state } = phases.next();
            seen.push([output, state]);
            phases.stepped(stepping);
            phases.outputs_taken();
        }
        assert_eq!(seen, [[0, 0], [1, 1], [0, 1], [1, 1], [0, 0]]);
        let mut one = Phases::new(1);
        one.outputs_taken();
        assert_eq!(one.next(), Phase::default());
    }
}
