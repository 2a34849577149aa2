//! The protocol of rmw_zenoh as bytes and texts: nothing here knows of a network.

mod attachment;
mod keys;
mod qos_text;
mod sequence;

pub use attachment::{ATTACHMENT_LEN, Attachment, AttachmentError, Gid};
pub use keys::{
    EntityKind, HashMode, TOKEN_PREFIX, Token, TokenEntity, TokenError, data_key, dds_type, ros_type,
};
pub use qos_text::{decode_qos, encode_qos};
pub use sequence::Sequences;
