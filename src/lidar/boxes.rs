//! Boxes as a head says them, before they become objects.

/// Variances of a [`Box3d`], as far as Autoware's CenterPoint head says them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Box3dVariance {
    /// Of x, y and z in m². `[0]` and `[1]` are the cell size in x times the exponential, as Autoware has it.
    pub position_m2: [f32; 3],
    /// Of the logarithms of length, width and height.
    pub log_size: [f32; 3],
    /// Of the yaw angle in rad².
    pub yaw_rad2: f32,
    /// Of the speed in x and y in m²/s².
    pub velocity_m2ps2: [f32; 2],
}

/// One decoded box in float32, in the frame of the cloud.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Box3d {
    /// Number of the class in the head's order.
    pub label: u32,
    /// Score of that class, above 0.
    pub score: f32,
    /// Sum of binary entropies that Autoware's CenterPoint keeps beside a box; 0 without variances.
    pub entropy: f32,
    /// Middle of the box in metres.
    pub position_m: [f32; 3],
    /// Length, width and height in metres.
    pub size_m: [f32; 3],
    /// Angle as the network says it; [`YawRule`](super::YawRule) makes a heading of it.
    pub yaw_rad: f32,
    /// Speed in x and y of the cloud's frame in m/s.
    pub velocity_mps: [f32; 2],
    /// Variances, where the network says them.
    pub variance: Option<Box3dVariance>,
    /// Cell of the grid (row by row) or number of the proposal.
    pub cell: u32,
}

impl Box3d {
    /// Whether every number is one.
    pub(super) fn is_finite(&self) -> bool {
        let variances = self.variance.is_none_or(|v| {
            let [x, y, z] = v.position_m2;
            let [l, w, h] = v.log_size;
            let [vx, vy] = v.velocity_m2ps2;
            [x, y, z, l, w, h, vx, vy, v.yaw_rad2]
                .iter()
                .all(|v| v.is_finite())
        });
        let [x, y, z] = self.position_m;
        let [l, w, h] = self.size_m;
        let [vx, vy] = self.velocity_mps;
        let rest = [self.score, self.entropy, self.yaw_rad];
        variances
            && [x, y, z, l, w, h, vx, vy]
                .iter()
                .chain(&rest)
                .all(|v| v.is_finite())
    }
}

/// What became of the cells or proposals of one head. They add up:
/// `seen = kept + below_score + out_of_range + weak_heading + non_finite + bad_label`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DecodeCounts {
    /// Cells or proposals.
    pub seen: usize,
    /// Those that became boxes.
    pub kept: usize,
    /// Below the score threshold of their class and distance.
    pub below_score: usize,
    /// Beyond the last distance bin.
    pub out_of_range: usize,
    /// Whose heading vector is too short to be trusted.
    pub weak_heading: usize,
    /// That hold NaN or infinity where a box needs a number. What is not looked at (the other heads of a cell with low
    /// scores) is not counted; a logit of minus infinity is a score of zero.
    pub non_finite: usize,
    /// Whose class number is not one of the head's.
    pub bad_label: usize,
}

/// Sorts boxes by falling score; equal scores by cell, so that the order is the same every time.
pub fn sort_by_score(boxes: &mut [Box3d]) {
    boxes.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.cell.cmp(&b.cell)));
}
