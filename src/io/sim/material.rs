//! What parts of bodies are made of, as far as a camera sees it.

/// The stuff of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Material {
    /// Bodywork of a vehicle, with the lamps, plates and seams on it.
    Paint,
    Glass,
    /// A lorry's load and what holds it.
    Cargo,
    /// What is dark under and between bodywork, and lamps at its rear.
    Chassis,
    /// A vehicle's wheel.
    Wheel,
    /// A bicycle's wheel.
    Spokes,
    /// A bicycle's frame and bar.
    Tubes,
    Trousers,
    Jacket,
    Head,
    House,
    /// A doorway or a bay of a house.
    Porch,
    Masonry,
    Fence,
    Bark,
    Leaves,
    Post,
    /// A traffic sign.
    Sign,
    /// The lamps of a crossing.
    Signal,
    /// A bin or a cabinet.
    Casing,
}
