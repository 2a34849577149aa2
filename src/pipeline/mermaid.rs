//! Pipelines as Mermaid flowcharts.

use std::fmt::Write;

use super::plan::{ActorRole, RunsOn};
use super::settings::{NodeKind, OnFull, Pipeline};

impl Pipeline {
    /// The nodes and their channels as a Mermaid flowchart.
    #[must_use]
    pub fn mermaid(&self) -> String {
        let mut chart = Chart::new();
        for node in &self.nodes {
            let detail = match &node.kind {
                NodeKind::Source(source) => format!("{} clock, rate {}", source.clock, source.rate),
                NodeKind::Detector(detector) => match self.models.get(&detector.model) {
                    Some(model) => format!("{}, {}", detector.model, model.numbers()),
                    None => detector.model.clone(),
                },
                NodeKind::Publisher(publisher) => publisher.transport().to_string(),
                NodeKind::Recorder(recorder) => recorder.path.display().to_string(),
                NodeKind::JsonLines(jsonl) => jsonl.path.display().to_string(),
                NodeKind::Compute(compute) => compute.describe(),
                NodeKind::Sync(sync) => sync.summary(),
                NodeKind::Concat(concat) => format!("into {}", concat.output_frame),
            };
            let form = match &node.kind {
                NodeKind::Source(_) => Form::Rounded,
                NodeKind::Detector(_) | NodeKind::Sync(_) | NodeKind::Concat(_) | NodeKind::Compute(_) => {
                    Form::Box
                }
                _ => Form::Flag,
            };
            chart.node(&node.name, form, &[&node.name, node.kind.name(), &detail]);
        }
        for edge in &self.edges {
            chart.arrow(&edge.from, &edge.to, edge.capacity, edge.on_full);
        }
        chart.text
    }

    /// The actors that the nodes become, and their channels, as a Mermaid flowchart.
    #[must_use]
    pub fn mermaid_expanded(&self) -> String {
        let plan = self.plan();
        let mut chart = Chart::new();
        for actor in &plan.actors {
            let runs_on = match actor.runs_on {
                RunsOn::Task => "task".to_owned(),
                RunsOn::Thread => "own thread".to_owned(),
                RunsOn::Workers(1) => "1 worker".to_owned(),
                RunsOn::Workers(count) => format!("{count} workers"),
            };
            let (form, role) = match actor.role {
                ActorRole::Source => (Form::Rounded, "source"),
                ActorRole::Sync => (Form::Box, "sync"),
                ActorRole::Concat => (Form::Box, "concat"),
                ActorRole::Prepare => (Form::Box, "prepare"),
                ActorRole::DeviceOwner => (Form::Box, "device owner"),
                ActorRole::Finish => (Form::Box, "finish"),
                ActorRole::Sink => (Form::Flag, "sink"),
                ActorRole::Compute => (Form::Box, "compute"),
            };
            chart.node(&actor.name, form, &[&actor.name, role, &runs_on]);
        }
        for channel in &plan.channels {
            chart.arrow(&channel.from, &channel.to, channel.capacity, channel.on_full);
        }
        chart.text
    }
}

/// Outline of a box in the chart.
enum Form {
    Rounded,
    Box,
    Flag,
}

/// A flowchart being written. Boxes are numbered, for names such as `end` mean something to Mermaid.
struct Chart {
    text: String,
    names: Vec<String>,
}

impl Chart {
    fn new() -> Self {
        Self {
            text: "flowchart LR\n".to_owned(),
            names: Vec::new(),
        }
    }

    fn node(&mut self, name: &str, form: Form, lines: &[&str]) {
        let index = self.names.len();
        self.names.push(name.to_owned());
        let lines: Vec<String> = lines.iter().copied().map(escape).collect();
        let label = lines.join("<br/>");
        let (open, close) = match form {
            Form::Rounded => ("([", "])"),
            Form::Box => ("[", "]"),
            Form::Flag => (">", "]"),
        };
        self.line(format_args!("n{index}{open}\"{label}\"{close}"));
    }

    fn arrow(&mut self, from: &str, to: &str, capacity: u32, on_full: OnFull) {
        let place = |wanted: &str| self.names.iter().position(|name| name == wanted);
        if let (Some(from), Some(to)) = (place(from), place(to)) {
            self.line(format_args!("n{from} -->|\"{capacity}, {on_full}\"| n{to}"));
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "    {line}");
    }
}

/// Text that Mermaid shows as it is.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' => out.push_str("#quot;"),
            '#' => out.push_str("#35;"),
            '<' => out.push_str("#lt;"),
            '>' => out.push_str("#gt;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
