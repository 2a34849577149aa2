//! Foxglove's messages of images, clouds, transforms and what was found in them.

use foxglove::messages::{
    Color, CompressedImage, CubePrimitive, FrameTransform, ImageAnnotations, KeyValuePair,
    PackedElementField, Point2, PointCloud, PointsAnnotation, Pose, Quaternion, RawImage, SceneEntity,
    SceneEntityDeletion, SceneUpdate, TextAnnotation, TextPrimitive, Timestamp, Vector3,
    packed_element_field, points_annotation, scene_entity_deletion,
};

use crate::io::foxglove::class_color;
use crate::io::messages::{CompressedImageMsg, ImageCodec, ImageMsg, PointCloud2Msg, field_type};
use crate::io::tf::Transform;
use crate::outputs::{DetectedObject, DetectedObjects, Detections2D};

const LINE_PX: f64 = 2.0;
const FONT_PX: f64 = 14.0;
const FONT_M: f64 = 0.7;

/// Foxglove's times have 32 bits for the seconds since 1970; what lies outside is left out.
fn time(stamp_ns: i64) -> Option<Timestamp> {
    let sec = u32::try_from(stamp_ns.div_euclid(1_000_000_000)).ok()?;
    Timestamp::new_checked(sec, stamp_ns.rem_euclid(1_000_000_000) as u32)
}

pub(super) fn frame_transform(
    parent: &str,
    child: &str,
    stamp_ns: i64,
    placed: &Transform,
) -> FrameTransform {
    let ([x, y, z], [qx, qy, qz, qw]) = (placed.translation, placed.rotation);
    FrameTransform {
        timestamp: time(stamp_ns),
        parent_frame_id: parent.to_owned(),
        child_frame_id: child.to_owned(),
        translation: Some(Vector3 { x, y, z }),
        rotation: Some(Quaternion {
            x: qx,
            y: qy,
            z: qz,
            w: qw,
        }),
    }
}

pub(super) fn raw_image(image: &ImageMsg<'_>, stamp_ns: i64) -> RawImage {
    RawImage {
        timestamp: time(stamp_ns),
        frame_id: image.header.frame_id.to_owned(),
        width: image.width,
        height: image.height,
        encoding: image.encoding.to_owned(),
        step: image.step,
        data: image.data.to_vec().into(),
    }
}

pub(super) fn compressed_image(image: &CompressedImageMsg<'_>, stamp_ns: i64) -> CompressedImage {
    let codec = match ImageCodec::of_bytes(image.data) {
        Some(codec) => codec.ros_name(),
        None => image.format,
    };
    CompressedImage {
        timestamp: time(stamp_ns),
        frame_id: image.header.frame_id.to_owned(),
        data: image.data.to_vec().into(),
        format: codec.to_owned(),
    }
}

/// Type of a field in Foxglove's numbering, and bytes of an element.
fn element(datatype: u8) -> Option<(packed_element_field::NumericType, usize)> {
    use packed_element_field::NumericType;
    Some(match datatype {
        field_type::INT8 => (NumericType::Int8, 1),
        field_type::UINT8 => (NumericType::Uint8, 1),
        field_type::INT16 => (NumericType::Int16, 2),
        field_type::UINT16 => (NumericType::Uint16, 2),
        field_type::INT32 => (NumericType::Int32, 4),
        field_type::UINT32 => (NumericType::Uint32, 4),
        field_type::FLOAT32 => (NumericType::Float32, 4),
        field_type::FLOAT64 => (NumericType::Float64, 8),
        _ => return None,
    })
}

/// The points without gaps between rows, little-endian. Fields of several elements are not shown.
pub(super) fn point_cloud(cloud: &PointCloud2Msg<'_>, stamp_ns: i64) -> Result<PointCloud, String> {
    let (stride, row_step) = (cloud.point_step as usize, cloud.row_step as usize);
    let row_bytes = stride.checked_mul(cloud.width as usize);
    let row_bytes = row_bytes.filter(|&bytes| bytes <= row_step || cloud.height <= 1);
    let row_bytes = row_bytes.ok_or("rows are shorter than their points")?;
    // Rows without bytes hold nothing, however many a message says there are.
    let rows = match row_bytes {
        0 => 0,
        _ => cloud.height as usize,
    };
    let needed = rows
        .checked_sub(1)
        .map_or(Some(0), |gaps| gaps.checked_mul(row_step)?.checked_add(row_bytes));
    if needed.is_none_or(|needed| needed > cloud.data.len()) {
        return Err("there are fewer points than it says".to_owned());
    }
    let mut fields = Vec::new();
    let mut swapped = Vec::new();
    for field in cloud.fields.iter().filter(|field| field.count <= 1) {
        let Some((numeric_type, bytes)) = element(field.datatype) else {
            continue;
        };
        let offset = field.offset as usize;
        if offset.checked_add(bytes).is_none_or(|end| end > stride) {
            return Err(format!("the field {} lies outside a point", field.name));
        }
        swapped.push((offset, bytes));
        fields.push(PackedElementField {
            name: field.name.to_owned(),
            offset: field.offset,
            r#type: numeric_type as i32,
        });
    }
    let mut data = Vec::with_capacity(rows * row_bytes);
    for row in 0..rows {
        data.extend_from_slice(&cloud.data[row * row_step..][..row_bytes]);
    }
    if cloud.is_bigendian && stride > 0 {
        for point in data.chunks_exact_mut(stride) {
            for &(offset, bytes) in &swapped {
                point[offset..offset + bytes].reverse();
            }
        }
    }
    Ok(PointCloud {
        timestamp: time(stamp_ns),
        frame_id: cloud.header.frame_id.to_owned(),
        pose: Some(Pose {
            position: Some(Vector3 {
                x: 0.0,
                y: 0.0,
                z: 0.0,
            }),
            orientation: Some(Quaternion {
                x: 0.0,
                y: 0.0,
                z: 0.0,
                w: 1.0,
            }),
        }),
        point_stride: cloud.point_step,
        fields,
        data: data.into(),
    })
}

fn color(label_id: u32, opacity: f64) -> Color {
    let color = class_color(label_id);
    Color {
        r: color.r,
        g: color.g,
        b: color.b,
        a: opacity,
    }
}

const WHITE: Color = Color {
    r: 1.0,
    g: 1.0,
    b: 1.0,
    a: 1.0,
};

fn pair(key: &str, value: String) -> KeyValuePair {
    KeyValuePair {
        key: key.to_owned(),
        value,
    }
}

/// Boxes over an image, a closed line and a text each.
pub(super) fn annotations(found: &Detections2D, stamp_ns: i64) -> ImageAnnotations {
    let timestamp = time(stamp_ns);
    let mut message = ImageAnnotations {
        timestamp,
        ..ImageAnnotations::default()
    };
    for detection in &found.detections {
        let [left, top, right, bottom] = detection.box_xyxy.map(f64::from);
        let corners = [(left, top), (right, top), (right, bottom), (left, bottom)];
        message.points.push(PointsAnnotation {
            timestamp,
            r#type: points_annotation::Type::LineLoop as i32,
            points: corners.map(|(x, y)| Point2 { x, y }).into(),
            outline_color: Some(color(detection.label_id, 1.0)),
            outline_colors: Vec::new(),
            fill_color: Some(color(detection.label_id, 0.0)),
            thickness: LINE_PX,
            metadata: vec![
                pair("label", found.label(detection).into_owned()),
                pair("score", detection.score.to_string()),
            ],
        });
        message.texts.push(TextAnnotation {
            timestamp,
            position: Some(Point2 { x: left, y: top }),
            text: format!("{} {:.2}", found.label(detection), detection.score),
            font_size: FONT_PX,
            text_color: Some(WHITE),
            background_color: Some(color(detection.label_id, 0.6)),
            metadata: Vec::new(),
        });
    }
    message
}

/// Boxes in space, in place of all that were there before.
pub(super) fn scene(found: &DetectedObjects, stamp_ns: i64) -> SceneUpdate {
    let timestamp = time(stamp_ns);
    let numbered = found.objects.iter().enumerate();
    SceneUpdate {
        deletions: vec![SceneEntityDeletion {
            timestamp,
            r#type: scene_entity_deletion::Type::All as i32,
            id: String::new(),
        }],
        entities: numbered
            .map(|(i, object)| entity(i, object, &found.frame_id, timestamp))
            .collect(),
    }
}

fn entity(
    number: usize,
    object: &DetectedObject,
    frame_id: &str,
    timestamp: Option<Timestamp>,
) -> SceneEntity {
    let [x, y, z] = object.position_m;
    let [length, width, height] = object.size_m;
    let turned = Quaternion {
        x: 0.0,
        y: 0.0,
        z: (object.yaw_rad / 2.0).sin(),
        w: (object.yaw_rad / 2.0).cos(),
    };
    let pose = |z: f64| {
        Some(Pose {
            position: Some(Vector3 { x, y, z }),
            orientation: Some(turned),
        })
    };
    SceneEntity {
        timestamp,
        frame_id: frame_id.to_owned(),
        id: number.to_string(),
        metadata: vec![
            pair("label", object.label.name().to_owned()),
            pair("score", object.score.to_string()),
        ],
        cubes: vec![CubePrimitive {
            pose: pose(z),
            size: Some(Vector3 {
                x: length,
                y: width,
                z: height,
            }),
            color: Some(color(object.label as u32, 0.4)),
        }],
        texts: vec![TextPrimitive {
            pose: pose(z + height / 2.0 + FONT_M),
            billboard: true,
            font_size: FONT_M,
            scale_invariant: false,
            color: Some(WHITE),
            text: format!("{} {:.2}", object.label.name(), object.score),
        }],
        ..SceneEntity::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::io::messages::{PointFieldMsg, PointFields};

    fn cloud(data: &[u8], is_bigendian: bool) -> PointCloud2Msg<'_> {
        let field = |name, offset, datatype, count| PointFieldMsg {
            name,
            offset,
            datatype,
            count,
        };
        PointCloud2Msg {
            height: 2,
            width: 2,
            fields: PointFields::from_vec(vec![
                field("x", 0, field_type::FLOAT32, 1),
                field("ring", 4, field_type::UINT16, 0),
                field("several", 0, field_type::UINT8, 4),
            ]),
            is_bigendian,
            point_step: 6,
            row_step: 15,
            data,
            ..PointCloud2Msg::default()
        }
    }

    #[test]
    fn a_cloud_loses_its_gaps_and_keeps_its_values_in_either_byte_order() {
        for big in [false, true] {
            let mut data = Vec::new();
            for row in 0..2_u16 {
                for column in 0..2_u16 {
                    let (x, ring) = (f32::from(row * 2 + column) + 0.5, row * 300 + column);
                    match big {
                        true => data.extend(x.to_be_bytes().into_iter().chain(ring.to_be_bytes())),
                        false => data.extend(x.to_le_bytes().into_iter().chain(ring.to_le_bytes())),
                    }
                }
                data.extend([0xee; 3]);
            }
            let shown = point_cloud(&cloud(&data, big), 5).unwrap();
            let names: Vec<(&str, i32)> = shown.fields.iter().map(|f| (f.name.as_str(), f.r#type)).collect();
            assert_eq!(names, [("x", 7), ("ring", 3)]);
            assert_eq!((shown.point_stride, shown.data.len()), (6, 24));
            for (i, point) in shown.data.chunks_exact(6).enumerate() {
                assert_eq!(f32::from_le_bytes(point[..4].try_into().unwrap()), i as f32 + 0.5);
                let ring = u16::from_le_bytes(point[4..].try_into().unwrap());
                assert_eq!(usize::from(ring), i / 2 * 300 + i % 2);
            }
        }
    }

    #[test]
    fn a_cloud_that_contradicts_itself_is_refused() {
        let data = [0; 27];
        let good = cloud(&data, false);
        assert!(point_cloud(&good, 0).is_ok());
        let wrong = [
            PointCloud2Msg {
                width: 3,
                ..good.clone()
            },
            PointCloud2Msg {
                height: 3,
                ..good.clone()
            },
            PointCloud2Msg {
                row_step: 16,
                ..good.clone()
            },
            PointCloud2Msg {
                point_step: 5,
                ..good.clone()
            },
            PointCloud2Msg {
                point_step: u32::MAX,
                width: u32::MAX,
                ..good.clone()
            },
            PointCloud2Msg {
                row_step: u32::MAX,
                height: u32::MAX,
                ..good.clone()
            },
        ];
        for cloud in wrong {
            assert!(point_cloud(&cloud, 0).is_err(), "{cloud:?}");
        }
        // Any number of rows without a point takes no time.
        let rows = PointCloud2Msg {
            height: u32::MAX,
            width: 0,
            row_step: 0,
            data: &[],
            ..good.clone()
        };
        assert!(point_cloud(&rows, 0).unwrap().data.is_empty());
        let empty = PointCloud2Msg {
            height: 0,
            data: &[],
            ..good
        };
        assert!(point_cloud(&empty, 0).unwrap().data.is_empty());
    }

    #[test]
    fn times_outside_of_foxgloves_are_left_out() {
        assert_eq!(
            time(1_700_000_000_000_000_007).map(|t| (t.sec(), t.nsec())),
            Some((1_700_000_000, 7))
        );
        assert_eq!((time(-1), time(i64::MAX)), (None, None));
    }
}
