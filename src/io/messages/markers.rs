//! `visualization_msgs/MarkerArray`: shapes that RViz and Foxglove draw.

use super::{HeaderMsg, PoseMsg, QuaternionMsg, Vector3Msg};
use crate::io::cdr::{CdrError, CdrWriter};
use crate::io::foxglove::class_color;
use crate::outputs::DetectedObject;

/// Numbers of `visualization_msgs/Marker.type`, those that are written here.
#[expect(missing_docs, reason = "the names say it")]
pub mod marker_type {
    pub const ARROW: i32 = 0;
    pub const CUBE: i32 = 1;
    pub const TEXT_VIEW_FACING: i32 = 9;
}

/// Numbers of `visualization_msgs/Marker.action`, those that are written here.
pub mod marker_action {
    /// Draw the marker, in place of one of the same namespace and number.
    pub const ADD: i32 = 0;
    /// Remove every marker of the topic.
    pub const DELETE_ALL: i32 = 3;
}

/// `visualization_msgs/Marker`, as far as boxes, arrows and texts need it; the fields for meshes, textures and lists of
/// points are written empty.
#[derive(Debug, Clone, PartialEq)]
pub struct MarkerMsg<'a> {
    /// Stamp and frame.
    pub header: HeaderMsg<'a>,
    /// Namespace, in which numbers tell markers apart.
    pub ns: &'a str,
    /// Number.
    pub id: i32,
    /// One of [`marker_type`].
    pub marker_type: i32,
    /// One of [`marker_action`].
    pub action: i32,
    /// Middle of a box, tail of an arrow, middle of a text.
    pub pose: PoseMsg,
    /// Sides of a box, length and thickness of an arrow, height of letters (z), in metres.
    pub scale: Vector3Msg,
    /// Red, green, blue and opacity, 0 to 1.
    pub color: [f32; 4],
    /// What a text says.
    pub text: String,
}

/// `visualization_msgs/MarkerArray`: some markers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MarkerArrayMsg<'a> {
    /// The markers.
    pub markers: Vec<MarkerMsg<'a>>,
}

/// Thickness of an arrow and height of letters in metres.
const ARROW_M: f64 = 0.3;
const LETTERS_M: f64 = 0.7;

impl<'a> MarkerArrayMsg<'a> {
    /// A see-through box, an arrow from its middle along its heading, and a text above it for every object, given as
    /// number, object and text. Everything that the topic showed before is removed.
    pub fn of_objects<'o>(
        header: HeaderMsg<'a>,
        objects: impl IntoIterator<Item = (u32, &'o DetectedObject, String)>,
    ) -> Self {
        let blank = MarkerMsg {
            header,
            ns: "",
            id: 0,
            marker_type: marker_type::CUBE,
            action: marker_action::DELETE_ALL,
            pose: PoseMsg::default(),
            // Some viewers warn of markers without a size, these included.
            scale: vector([1.0; 3]),
            color: [0.0; 4],
            text: String::new(),
        };
        let mut markers = vec![blank.clone()];
        for (id, object, text) in objects {
            let [length, width, height] = object.size_m;
            let color = class_color(object.label as u32);
            let rgb = [color.r, color.g, color.b].map(|part| part as f32);
            let with = |opacity: f32| [rgb[0], rgb[1], rgb[2], opacity];
            let marker = MarkerMsg {
                id: id as i32,
                action: marker_action::ADD,
                pose: pose(object, 0.0),
                ..blank.clone()
            };
            markers.push(MarkerMsg {
                ns: "boxes",
                scale: vector([length, width, height]),
                color: with(0.35),
                ..marker.clone()
            });
            markers.push(MarkerMsg {
                ns: "headings",
                marker_type: marker_type::ARROW,
                scale: vector([length / 2.0 + 1.0, ARROW_M, ARROW_M]),
                color: with(1.0),
                ..marker.clone()
            });
            markers.push(MarkerMsg {
                ns: "texts",
                marker_type: marker_type::TEXT_VIEW_FACING,
                pose: pose(object, height / 2.0 + LETTERS_M),
                scale: vector([0.0, 0.0, LETTERS_M]),
                color: [1.0; 4],
                text,
                ..marker
            });
        }
        Self { markers }
    }

    /// Encodes the message, little-endian.
    ///
    /// # Errors
    /// [`CdrError::TooLong`].
    pub fn encode(&self) -> Result<Vec<u8>, CdrError> {
        let mut writer = CdrWriter::with_capacity(8 + 280 * self.markers.len());
        writer.len_prefix(self.markers.len())?;
        for marker in &self.markers {
            marker.write(&mut writer)?;
        }
        Ok(writer.finish())
    }
}

impl MarkerMsg<'_> {
    fn write(&self, writer: &mut CdrWriter) -> Result<(), CdrError> {
        self.header.write(writer)?;
        writer.string(self.ns)?;
        writer.i32(self.id);
        writer.i32(self.marker_type);
        writer.i32(self.action);
        self.pose.write(writer);
        self.scale.write(writer);
        for part in self.color {
            writer.f32(part);
        }
        // No end to its life.
        writer.i32(0);
        writer.u32(0);
        // It stays where it is in the fixed frame when its own frame moves.
        writer.bool(false);
        let no_points = 0;
        writer.len_prefix(no_points)?;
        let no_colors = 0;
        writer.len_prefix(no_colors)?;
        let no_texture = "";
        writer.string(no_texture)?;
        // The texture's header, format and bytes, and where they belong.
        writer.i32(0);
        writer.u32(0);
        writer.string("")?;
        writer.string("")?;
        writer.bytes(&[])?;
        writer.len_prefix(0)?;
        writer.string(&self.text)?;
        // A mesh by name, then one by its bytes.
        writer.string("")?;
        writer.string("")?;
        writer.bytes(&[])?;
        writer.bool(false);
        Ok(())
    }
}

const fn vector([x, y, z]: [f64; 3]) -> Vector3Msg {
    Vector3Msg { x, y, z }
}

/// An object's pose, `up_m` above its middle.
fn pose(object: &DetectedObject, up_m: f64) -> PoseMsg {
    let [x, y, z] = object.position_m;
    let (sin, cos) = (object.yaw_rad / 2.0).sin_cos();
    PoseMsg {
        position: vector([x, y, z + up_m]),
        orientation: QuaternionMsg {
            z: sin,
            w: cos,
            ..QuaternionMsg::default()
        },
    }
}
