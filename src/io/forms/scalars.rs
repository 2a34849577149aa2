//! Numbers of any type in bytes of either order.

use half::f16;

use crate::io::cloud::Scalar;

/// One number; `bytes` are as many as its type has.
pub(super) fn number(scalar: Scalar, big_endian: bool, bytes: &[u8]) -> f64 {
    let mut le = [0; 8];
    let size = scalar.size().min(bytes.len());
    le[..size].copy_from_slice(&bytes[..size]);
    if big_endian {
        le[..size].reverse();
    }
    let [a, b, c, d, ..] = le;
    match scalar {
        Scalar::I8 => f64::from(a as i8),
        Scalar::U8 => f64::from(a),
        Scalar::I16 => f64::from(i16::from_le_bytes([a, b])),
        Scalar::U16 => f64::from(u16::from_le_bytes([a, b])),
        Scalar::I32 => f64::from(i32::from_le_bytes([a, b, c, d])),
        Scalar::U32 => f64::from(u32::from_le_bytes([a, b, c, d])),
        Scalar::I64 => i64::from_le_bytes(le) as f64,
        Scalar::U64 => u64::from_le_bytes(le) as f64,
        Scalar::F16 => f64::from(f16::from_le_bytes([a, b])),
        Scalar::F32 => f64::from(f32::from_le_bytes([a, b, c, d])),
        Scalar::F64 => f64::from_le_bytes(le),
    }
}
