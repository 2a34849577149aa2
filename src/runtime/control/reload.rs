//! Taking a changed pipeline over while frames flow.

use std::sync::Arc;

use serde::Serialize;

use super::{Control, ControlError};
use crate::pipeline::{Node, Pipeline, ReloadDiff, ReloadStep};
use crate::runtime::sink_desk::SinkDesk;
use crate::runtime::sinks::check_output;

/// A step that could not be carried out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FailedStep {
    /// The step.
    pub step: ReloadStep,
    /// Why not.
    pub reason: String,
}

/// What became of a reload.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ReloadReport {
    /// What changed, in the order in which it was done.
    pub done: Vec<ReloadStep>,
    /// Where it ended; everything before was done, and what was not named was not touched.
    pub failed: Option<FailedStep>,
    /// What was not done after that.
    pub left: Vec<ReloadStep>,
}

impl ReloadReport {
    /// Whether the run is now as the pipeline says.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.failed.is_none()
    }
}

impl Control {
    /// Takes the changes of `new` over. If any of them takes a new run, nothing is done. Otherwise they are carried out one
    /// after another, and the first that cannot be ends it: a later reload goes on from there. Streams that are not named
    /// in a step lose no frame.
    ///
    /// A parameter that was set by [`Control::set_param`] stays until a reload changes it in the file.
    ///
    /// # Errors
    /// [`ControlError::NotRunning`], [`ControlError::Deterministic`], [`ControlError::NewRun`].
    pub async fn reload(&self, new: &Pipeline) -> Result<ReloadReport, ControlError> {
        self.changeable()?;
        // One at a time.
        let mut current = self.board().current().lock().await;
        let Some(current) = current.as_mut() else {
            return Err(ControlError::NotRunning);
        };
        let ReloadDiff { steps } = current.diff(new);
        let blocking: Vec<String> = steps
            .iter()
            .filter(|step| !step.is_live())
            .map(ToString::to_string)
            .collect();
        if !blocking.is_empty() {
            return Err(ControlError::NewRun { changes: blocking });
        }
        let mut report = ReloadReport::default();
        let mut steps = steps.into_iter();
        for step in steps.by_ref() {
            tracing::info!(%step, "reload");
            if let Err(reason) = self.carry_out(&step, current, new).await {
                tracing::error!(%step, reason, "reload stopped here");
                report.failed = Some(FailedStep { step, reason });
                break;
            }
            report.done.push(step);
        }
        report.left.extend(steps);
        Ok(report)
    }

    /// Does what a step says, and has `current` say what runs then, also where that is half of the step.
    async fn carry_out(
        &self,
        step: &ReloadStep,
        current: &mut Pipeline,
        new: &Pipeline,
    ) -> Result<(), String> {
        let told = |error: ControlError| error.to_string();
        let then = current.after(step, new);
        match step {
            ReloadStep::SetParameter {
                detector,
                name,
                value,
            } => self
                .set_param(detector, name, value.clone())
                .await
                .map_err(told)?,
            ReloadStep::CloseSink { node } => self.desk()?.close(node).await,
            ReloadStep::OpenSink { node } => self.open_sink(node, &then).await?,
            ReloadStep::ReopenSink { node } => {
                // A sink that may not be opened so goes on as it is.
                check_output(&then, node_of(&then, node)?).map_err(|error| error.to_string())?;
                self.desk()?.close(node).await;
                *current = current.after(&ReloadStep::CloseSink { node: node.clone() }, new);
                self.open_sink(node, &then).await?;
            }
            // What was asked for directly since is done already.
            ReloadStep::RemoveStream { source, topic } if !self.plays(source, topic) => {
                self.source(source).map_err(told)?.desk.remove(topic);
            }
            ReloadStep::RemoveStream { source, topic } => {
                self.remove_stream(source, topic).await.map_err(told)?;
            }
            ReloadStep::AddStream { source, topic } if self.plays(source, topic) => {}
            ReloadStep::AddStream { source, topic } => {
                self.add_stream(source, topic).await.map_err(told)?;
            }
            step => return Err(step.to_string()),
        }
        *current = then;
        Ok(())
    }

    fn desk(&self) -> Result<Arc<SinkDesk>, String> {
        let desk = self.board().sinks();
        desk.ok_or_else(|| ControlError::NotRunning.to_string())
    }

    /// Opens a sink of `pipeline`, which is what runs then.
    async fn open_sink(&self, name: &str, pipeline: &Pipeline) -> Result<(), String> {
        let desk = self.desk()?;
        let node = node_of(pipeline, name)?;
        check_output(pipeline, node).map_err(|error| error.to_string())?;
        desk.open(pipeline, node).await.map_err(|error| error.to_string())
    }
}

fn node_of<'a>(pipeline: &'a Pipeline, name: &str) -> Result<&'a Node, String> {
    let node = pipeline.nodes.iter().find(|node| node.name == name);
    node.ok_or_else(|| format!("there is no sink {name}"))
}
