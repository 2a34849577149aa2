//! Results, and the messages they belong to, for people who watch with Foxglove.

use std::sync::Arc;

use super::Sink;
use crate::io::foxglove_live::FoxgloveServer;
use crate::io::messages::{TF_TYPE, TfMsg};
use crate::outputs::Detections;
use crate::runtime::frame::{Detected, Sample};
use crate::runtime::poses::Poses;

/// Shows each result to the clients that want it.
#[derive(Debug)]
pub(crate) struct ViewerSink {
    server: FoxgloveServer,
    poses: Option<Arc<Poses>>,
}

impl ViewerSink {
    /// A sink on a server that listens. Without poses only transforms that came with a frame are shown.
    pub(crate) fn new(server: FoxgloveServer, poses: Option<Arc<Poses>>) -> Self {
        Self { server, poses }
    }

    fn show_transforms(&self, sample: &Sample<Detected>) {
        let meta = &sample.meta;
        let beside = sample
            .message
            .beside
            .iter()
            .filter(|message| &*message.type_name == TF_TYPE);
        let mut any = false;
        for message in beside {
            // Made by this program, so that it can be read.
            if let Ok(transforms) = TfMsg::decode(&message.data) {
                self.server.show_transforms(&transforms, meta.stamp_ns);
                any = true;
            }
        }
        if let (false, Some(poses), Detections::Objects(_)) = (any, &self.poses, &sample.payload.detections)
            && let Some(placed) = poses.placed(&meta.frame_id, meta.stamp_ns)
        {
            self.server
                .show_transform(poses.world(), &meta.frame_id, meta.stamp_ns, &placed);
        }
    }
}

impl Sink for ViewerSink {
    const GOES_ON: bool = true;

    async fn write(&mut self, sample: &Arc<Sample<Detected>>) -> Result<(), String> {
        let (meta, message) = (&sample.meta, &sample.message);
        if self.server.wants_transforms() {
            self.show_transforms(sample);
        }
        let shown =
            self.server
                .show_message(&message.topic, &message.type_name, meta.stamp_ns, &message.data);
        self.server
            .show_found(&message.topic, meta.stamp_ns, &sample.payload.detections);
        shown.map_err(|error| error.to_string())
    }

    async fn recover(&mut self) -> Result<(), String> {
        Ok(())
    }

    async fn finish(self) -> Result<(), String> {
        self.server.close().await;
        Ok(())
    }
}
