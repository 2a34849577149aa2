//! A server that Foxglove connects to: point clouds, images with boxes, boxes in space and transforms while they come.
//!
//! Messages have Foxglove's own schemas (<https://docs.foxglove.dev/docs/sdk/schemas>) as Protobuf. A topic `T` of a
//! sensor carries `foxglove.PointCloud`, `foxglove.RawImage` or `foxglove.CompressedImage`; what was found in it is on
//! `T/detections` as `foxglove.SceneUpdate` or `foxglove.ImageAnnotations`; transforms are on `/tf`.
//!
//! Nothing is encoded for a topic that no client has subscribed to. A client that cannot keep up loses its oldest messages;
//! nobody waits for it.

mod messages;

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use foxglove::messages::{
    CompressedImage, FrameTransforms, ImageAnnotations, PointCloud, RawImage, SceneUpdate,
};
use foxglove::{
    Channel, ChannelBuilder, Context, Encode, PartialMetadata, WebSocketServer, WebSocketServerHandle,
};

use self::messages::{annotations, compressed_image, frame_transform, point_cloud, raw_image, scene};
use super::messages::{
    COMPRESSED_IMAGE_TYPE, CompressedImageMsg, IMAGE_TYPE, ImageMsg, POINT_CLOUD_TYPE, PointCloud2Msg, TfMsg,
};
use super::tf::Transform;
use crate::outputs::Detections;

/// Messages that wait for one client. A cloud takes megabytes, so there are few of them.
const BACKLOG: usize = 32;
/// Time that clients have for the last messages.
const LAST_LOOK: Duration = Duration::from_millis(300);
/// Longest time that clients may take to say farewell.
const FAREWELL: Duration = Duration::from_secs(1);
/// Topic of transforms.
const TRANSFORMS: &str = "/tf";

/// Why nobody can connect, or a message cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum FoxgloveError {
    /// The address cannot be listened on.
    #[error("cannot listen for Foxglove on {address}: {reason}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What is wrong.
        reason: String,
    },
    /// A sensor's message that cannot be read.
    #[error("{topic}: {reason}")]
    Message {
        /// Its topic.
        topic: String,
        /// What is wrong.
        reason: String,
    },
}

/// A server that clients are or may be connected to.
pub struct FoxgloveServer {
    context: Arc<Context>,
    handle: WebSocketServerHandle,
    address: SocketAddr,
    sensors: HashMap<Arc<str>, Sensor>,
    found: HashMap<Arc<str>, Found>,
    transforms: Channel<FrameTransforms>,
}

/// The channel of a sensor's own messages.
enum Sensor {
    Cloud(Channel<PointCloud>),
    Raw(Channel<RawImage>),
    Compressed(Channel<CompressedImage>),
    /// Messages of a type that Foxglove has no schema for.
    None,
}

/// The channel of what was found.
enum Found {
    Image(Channel<ImageAnnotations>),
    Space(Channel<SceneUpdate>),
}

impl FoxgloveServer {
    /// Listens on an address, on the present runtime of `tokio`. `name` is shown to clients.
    ///
    /// # Errors
    /// [`FoxgloveError::Listen`].
    pub async fn start(address: SocketAddr, name: &str) -> Result<Self, FoxgloveError> {
        let context = Context::new();
        let server = WebSocketServer::new()
            .name(name)
            .context(&context)
            .bind(address.ip().to_string(), address.port())
            .message_backlog_size(BACKLOG);
        let handle = server.start().await.map_err(|error| FoxgloveError::Listen {
            address,
            reason: error.to_string(),
        })?;
        let transforms = channel(&context, TRANSFORMS);
        Ok(Self {
            address: SocketAddr::new(address.ip(), handle.port()),
            context,
            handle,
            sensors: HashMap::new(),
            found: HashMap::new(),
            transforms,
        })
    }

    /// Where it listens, with the port that was chosen.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Shows a sensor's message, a CDR message of the ROS type `type_name`, to whoever subscribed to its topic.
    ///
    /// # Errors
    /// [`FoxgloveError::Message`].
    pub fn show_message(
        &mut self,
        topic: &Arc<str>,
        type_name: &str,
        stamp_ns: i64,
        data: &[u8],
    ) -> Result<(), FoxgloveError> {
        let context = &self.context;
        let sensor = self
            .sensors
            .entry(Arc::clone(topic))
            .or_insert_with(|| match type_name {
                POINT_CLOUD_TYPE => Sensor::Cloud(channel(context, topic)),
                IMAGE_TYPE => Sensor::Raw(channel(context, topic)),
                COMPRESSED_IMAGE_TYPE => Sensor::Compressed(channel(context, topic)),
                _ => Sensor::None,
            });
        let shown = match sensor {
            Sensor::Cloud(channel) => show(channel, stamp_ns, || {
                point_cloud(
                    &PointCloud2Msg::decode(data).map_err(|e| e.to_string())?,
                    stamp_ns,
                )
            }),
            Sensor::Raw(channel) => show(channel, stamp_ns, || {
                let image = ImageMsg::decode(data).map_err(|e| e.to_string())?;
                Ok(raw_image(&image, stamp_ns))
            }),
            Sensor::Compressed(channel) => show(channel, stamp_ns, || {
                let image = CompressedImageMsg::decode(data).map_err(|e| e.to_string())?;
                Ok(compressed_image(&image, stamp_ns))
            }),
            Sensor::None => Ok(()),
        };
        shown.map_err(|reason| FoxgloveError::Message {
            topic: topic.to_string(),
            reason,
        })
    }

    /// Shows what was found in a sensor's message.
    pub fn show_found(&mut self, topic: &Arc<str>, stamp_ns: i64, detections: &Detections) {
        let context = &self.context;
        let name = || format!("{}/detections", topic.trim_end_matches('/'));
        let found = self
            .found
            .entry(Arc::clone(topic))
            .or_insert_with(|| match detections {
                Detections::Image(_) => Found::Image(channel(context, &name())),
                Detections::Objects(_) => Found::Space(channel(context, &name())),
            });
        // Nothing that is shown here can fail.
        let _ = match (found, detections) {
            (Found::Image(channel), Detections::Image(found)) => {
                show(channel, stamp_ns, || Ok(annotations(found, stamp_ns)))
            }
            (Found::Space(channel), Detections::Objects(found)) => {
                show(channel, stamp_ns, || Ok(scene(found, stamp_ns)))
            }
            // A topic's detectors find either the one or the other.
            _ => Ok(()),
        };
    }

    /// Whether a client wants transforms.
    #[must_use]
    pub fn wants_transforms(&self) -> bool {
        self.transforms.has_sinks()
    }

    /// Shows a `tf2_msgs/TFMessage`.
    pub fn show_transforms(&self, message: &TfMsg<'_>, stamp_ns: i64) {
        let transforms = message.transforms.iter().map(|transform| {
            let (moved, turned) = (transform.transform.translation, transform.transform.rotation);
            let placed = Transform {
                translation: [moved.x, moved.y, moved.z],
                rotation: [turned.x, turned.y, turned.z, turned.w],
            };
            frame_transform(
                transform.header.frame_id,
                transform.child_frame_id,
                transform.header.stamp_ns(),
                &placed,
            )
        });
        let transforms = transforms.collect();
        let _ = show(&self.transforms, stamp_ns, || Ok(FrameTransforms { transforms }));
    }

    /// Shows where a frame is in its parent.
    pub fn show_transform(&self, parent: &str, child: &str, stamp_ns: i64, placed: &Transform) {
        let transforms = vec![frame_transform(parent, child, stamp_ns, placed)];
        let _ = show(&self.transforms, stamp_ns, || Ok(FrameTransforms { transforms }));
    }

    /// Lets the clients go, after a moment in which they can take what was sent to them. One that does not take it is not
    /// waited for.
    pub async fn close(self) {
        if self.handle.client_count() > 0 {
            // Whoever stops the server drops what still waits for a client, and nothing tells when that is gone.
            tokio::time::sleep(LAST_LOOK).await;
        }
        let closed = self.handle.stop().wait();
        if tokio::time::timeout(FAREWELL, closed).await.is_err() {
            tracing::debug!(address = %self.address, "a client of Foxglove did not take what was sent to it");
        }
    }
}

impl fmt::Debug for FoxgloveServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FoxgloveServer")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

fn channel<T: Encode>(context: &Arc<Context>, topic: &str) -> Channel<T> {
    ChannelBuilder::new(topic).context(context).build()
}

/// Makes a message and sends it, if anybody wants it.
fn show<T: Encode>(
    channel: &Channel<T>,
    stamp_ns: i64,
    message: impl FnOnce() -> Result<T, String>,
) -> Result<(), String> {
    if channel.has_sinks() {
        let stamp_ns = u64::try_from(stamp_ns).unwrap_or(0);
        channel.log_with_meta(&message()?, PartialMetadata::with_log_time(stamp_ns));
    }
    Ok(())
}
