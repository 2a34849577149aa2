//! `foxglove.SceneUpdate`: boxes of objects in a 3D scene, as the Foxglove viewer draws them.
//!
//! Messages are JSON in the shape of Foxglove's public JSON schema
//! (<https://docs.foxglove.dev/docs/sdk/schemas/scene-update>). Every message removes what was drawn before it, so objects
//! that are gone disappear.

use serde::Serialize;
use serde_json::json;

use super::foxglove::{Color, Time, class_color};
use crate::outputs::DetectedObject;

/// Name of the schema.
pub const SCENE_UPDATE: &str = "foxglove.SceneUpdate";

/// `SceneEntityDeletionType.ALL`.
const DELETE_ALL: u8 = 1;
const ARROW_M: f64 = 0.25;
const FONT_SIZE_PX: f64 = 14.0;

/// A box with a text above it.
#[derive(Debug, Clone, PartialEq)]
pub struct SceneBox<'a> {
    /// Tells the boxes of a message apart.
    pub id: u32,
    /// Place, size, heading and class.
    pub object: &'a DetectedObject,
    /// What is written above it.
    pub text: String,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Duration {
    sec: u32,
    nsec: u32,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Vector {
    x: f64,
    y: f64,
    z: f64,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Quaternion {
    x: f64,
    y: f64,
    z: f64,
    w: f64,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Pose {
    position: Vector,
    orientation: Quaternion,
}

#[derive(Debug, Serialize)]
struct Cube {
    pose: Pose,
    size: Vector,
    color: Color,
}

#[derive(Debug, Serialize)]
struct Arrow {
    pose: Pose,
    shaft_length: f64,
    shaft_diameter: f64,
    head_length: f64,
    head_diameter: f64,
    color: Color,
}

#[derive(Debug, Serialize)]
struct Text<'a> {
    pose: Pose,
    billboard: bool,
    font_size: f64,
    scale_invariant: bool,
    color: Color,
    text: &'a str,
}

#[derive(Debug, Serialize)]
struct Entity<'a> {
    timestamp: Time,
    frame_id: &'a str,
    id: String,
    lifetime: Duration,
    frame_locked: bool,
    metadata: [(); 0],
    arrows: [Arrow; 1],
    cubes: [Cube; 1],
    spheres: [(); 0],
    cylinders: [(); 0],
    lines: [(); 0],
    triangles: [(); 0],
    texts: [Text<'a>; 1],
    models: [(); 0],
}

#[derive(Debug, Serialize)]
struct Deletion {
    timestamp: Time,
    r#type: u8,
    id: &'static str,
}

#[derive(Debug, Serialize)]
struct SceneUpdate<'a> {
    deletions: [Deletion; 1],
    entities: Vec<Entity<'a>>,
}

/// One message with a see-through box, an arrow along its heading and a text for every object, as JSON.
///
/// `frame_id` is the frame of the objects, `stamp_ns` the stamp of the cloud that shows them.
///
/// # Errors
/// The serialiser's; none is known for this shape.
pub fn scene_update(boxes: &[SceneBox<'_>], frame_id: &str, stamp_ns: u64) -> serde_json::Result<Vec<u8>> {
    let timestamp = Time::new(stamp_ns);
    let entities = boxes.iter().map(|of| {
        let object = of.object;
        let [length, width, height] = object.size_m;
        let color = class_color(object.label as u32);
        let front = length / 2.0;
        Entity {
            timestamp,
            frame_id,
            id: of.id.to_string(),
            lifetime: Duration { sec: 0, nsec: 0 },
            frame_locked: false,
            metadata: [],
            arrows: [Arrow {
                pose: pose(object, 0.0),
                shaft_length: front,
                shaft_diameter: ARROW_M / 2.0,
                head_length: ARROW_M * 2.0,
                head_diameter: ARROW_M,
                color,
            }],
            cubes: [Cube {
                pose: pose(object, 0.0),
                size: Vector {
                    x: length,
                    y: width,
                    z: height,
                },
                color: Color { a: 0.35, ..color },
            }],
            spheres: [],
            cylinders: [],
            lines: [],
            triangles: [],
            texts: [Text {
                pose: pose(object, height / 2.0 + 0.4),
                billboard: true,
                font_size: FONT_SIZE_PX,
                scale_invariant: true,
                color: Color {
                    r: 1.0,
                    g: 1.0,
                    b: 1.0,
                    a: 1.0,
                },
                text: &of.text,
            }],
            models: [],
        }
    });
    serde_json::to_vec(&SceneUpdate {
        deletions: [Deletion {
            timestamp,
            r#type: DELETE_ALL,
            id: "",
        }],
        entities: entities.collect(),
    })
}

/// An object's pose, `up_m` above its middle.
fn pose(object: &DetectedObject, up_m: f64) -> Pose {
    let [x, y, z] = object.position_m;
    let (sin, cos) = (object.yaw_rad / 2.0).sin_cos();
    Pose {
        position: Vector { x, y, z: z + up_m },
        orientation: Quaternion {
            x: 0.0,
            y: 0.0,
            z: sin,
            w: cos,
        },
    }
}

/// The JSON schema of [`SCENE_UPDATE`] as far as it is used here, for the recording's schema record.
#[must_use]
pub fn scene_update_schema() -> String {
    let number = json!({"type": "number"});
    let object = |title: &str, properties: serde_json::Value| {
        json!({
            "type": "object", "title": title, "properties": properties
        })
    };
    let list = |items: &serde_json::Value| json!({"type": "array", "items": items});
    let whole = json!({"type": "integer", "minimum": 0});
    let moment = |title: &str| object(title, json!({"sec": whole, "nsec": whole}));
    let vector = object("foxglove.Vector3", json!({"x": number, "y": number, "z": number}));
    let rotation = json!({"x": number, "y": number, "z": number, "w": number});
    let orientation = object("foxglove.Quaternion", rotation);
    let pose = object(
        "foxglove.Pose",
        json!({"position": vector, "orientation": orientation}),
    );
    let color = object(
        "foxglove.Color",
        json!({"r": number, "g": number, "b": number, "a": number}),
    );
    let cube = object(
        "foxglove.CubePrimitive",
        json!({"pose": pose, "size": vector, "color": color}),
    );
    let arrow = json!({
        "pose": pose, "shaft_length": number, "shaft_diameter": number, "head_length": number,
        "head_diameter": number, "color": color
    });
    let text = json!({
        "pose": pose, "billboard": {"type": "boolean"}, "font_size": number,
        "scale_invariant": {"type": "boolean"}, "color": color, "text": {"type": "string"}
    });
    let unused = list(&json!({"type": "object"}));
    let entity = json!({
        "timestamp": moment("time"), "frame_id": {"type": "string"}, "id": {"type": "string"},
        "lifetime": moment("duration"), "frame_locked": {"type": "boolean"}, "metadata": unused,
        "arrows": list(&object("foxglove.ArrowPrimitive", arrow)), "cubes": list(&cube),
        "spheres": unused, "cylinders": unused, "lines": unused, "triangles": unused,
        "texts": list(&object("foxglove.TextPrimitive", text)), "models": unused
    });
    let deletion = json!({"timestamp": moment("time"), "type": whole, "id": {"type": "string"}});
    let mut schema = object(
        SCENE_UPDATE,
        json!({
            "deletions": list(&object("foxglove.SceneEntityDeletion", deletion)),
            "entities": list(&object("foxglove.SceneEntity", entity))
        }),
    );
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema.to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::outputs::{ObjectLabel, OrientationAvailability};

    #[test]
    fn an_object_becomes_a_box_with_an_arrow_and_a_text_and_older_ones_go() {
        let object = DetectedObject {
            label: ObjectLabel::Bus,
            score: 0.5,
            position_m: [10.0, -2.0, -0.25],
            yaw_rad: std::f64::consts::PI,
            size_m: [11.0, 2.5, 3.0],
            orientation: OrientationAvailability::Available,
            twist: None,
            pose_variance: None,
            twist_variance: None,
        };
        let boxes = [SceneBox {
            id: 9,
            object: &object,
            text: "BUS".to_owned(),
        }];
        let json = scene_update(&boxes, "lidar", 1_700_000_000_000_000_007).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let time = json!({"sec": 1_700_000_000, "nsec": 7});
        assert_eq!(
            value["deletions"],
            json!([{"timestamp": time, "type": 1, "id": ""}])
        );
        let entity = &value["entities"][0];
        assert_eq!((&entity["timestamp"], &entity["id"]), (&time, &json!("9")));
        assert_eq!(entity["frame_id"], "lidar");
        let cube = &entity["cubes"][0];
        assert_eq!(cube["size"], json!({"x": 11.0, "y": 2.5, "z": 3.0}));
        assert_eq!(
            cube["pose"]["position"],
            json!({"x": 10.0, "y": -2.0, "z": -0.25})
        );
        assert_eq!(cube["pose"]["orientation"]["z"], 1.0);
        assert_eq!(entity["arrows"][0]["shaft_length"], 5.5);
        assert_eq!(entity["texts"][0]["text"], "BUS");
        assert!(entity["texts"][0]["pose"]["position"]["z"].as_f64().unwrap() > 1.25);
    }
}
