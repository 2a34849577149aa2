//! Taking a changed pipeline file over while it runs.

use miette::{Report, miette};

use super::pipeline_args::PipelineArgs;
use super::report;
use crate::pipeline::Overrides;
use crate::runtime::Control;

/// From now on reads the file again at every SIGHUP and takes over what changed, with the options that the run was started
/// with. What is wrong with the file is told, and the run goes on as it is. Needs a tokio runtime.
#[cfg(unix)]
pub(super) fn on_hangup(control: Control, args: PipelineArgs, overrides: Overrides) {
    use tokio::signal::unix::{SignalKind, signal};

    let mut hangups = match signal(SignalKind::hangup()) {
        Ok(hangups) => hangups,
        Err(error) => {
            tracing::warn!(%error, "SIGHUP cannot be caught; the pipeline file is not read again");
            return;
        }
    };
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            if let Err(error) = reload(&control, &args, &overrides).await {
                report::show(&error);
            }
        }
    });
}

/// There is no such signal here.
#[cfg(not(unix))]
pub(super) fn on_hangup(_: Control, _: PipelineArgs, _: Overrides) {}

#[cfg_attr(not(unix), expect(dead_code, reason = "there is no signal that asks for it"))]
async fn reload(control: &Control, args: &PipelineArgs, overrides: &Overrides) -> miette::Result<()> {
    let file = args.named();
    let pipeline = args.load(overrides.clone())?.into_pipeline();
    for warning in &pipeline.warnings {
        report::show(&Report::new(warning.clone()));
    }
    pipeline.require_files()?;
    let told = |error: crate::runtime::ControlError| {
        miette!(
            help = "stop the run and start it again for such changes",
            "{} is not taken over: {error}",
            file.display()
        )
    };
    let outcome = control.reload(&pipeline).await.map_err(told)?;
    if outcome.done.is_empty() && outcome.failed.is_none() {
        eprintln!("{}: nothing changes", file.display());
    }
    for step in &outcome.done {
        eprintln!("done: {step}");
    }
    if let Some(failed) = &outcome.failed {
        for step in &outcome.left {
            eprintln!("left: {step}");
        }
        return Err(miette!(
            help = "correct it and send SIGHUP again: it goes on from there",
            "not done: {}: {}",
            failed.step,
            failed.reason
        ));
    }
    Ok(())
}
