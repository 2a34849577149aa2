//! A sweep seen from above: what a cell holds, in a few numbers.

use crate::lidar::Columns;

/// Half the side of the square around the sensor in metres.
pub const BEV_RANGE_M: f32 = 51.2;
/// Cells along a side.
pub const BEV_SIDE: usize = 128;
/// Numbers of a cell.
pub const BEV_CHANNELS: usize = 8;

/// Upper limits of the height bins in metres; what is below -3 m or above the last one is left out.
const HEIGHTS_M: [f32; 4] = [-1.0, 0.5, 2.0, 5.0];
const LOWEST_M: f32 = -3.0;

/// Fills `[BEV_SIDE, BEV_SIDE, BEV_CHANNELS]` (rows along y, columns along x, both from -51.2 m): of each cell
/// `n / (n + 4)` for `n` points, the highest and the mean z over 4 m, the mean intensity over 255, and whether there is a
/// point in each of four bins of height. Sums are float32, in the order of the points; points that are no numbers or
/// outside are left out. Cells without points are zeros.
pub fn bev_features(points: &Columns<'_>, features: &mut [[f32; BEV_CHANNELS]]) {
    const COUNT: usize = 0;
    const TOP: usize = 1;
    const MEAN: usize = 2;
    const INTENSITY: usize = 3;
    const BINS: usize = 4;
    features.fill([0.0; BEV_CHANNELS]);
    let cell_m = 2.0 * BEV_RANGE_M / BEV_SIDE as f32;
    for i in 0..points.x.len() {
        let [x, y, z] = [points.x[i], points.y[i], points.z[i]];
        let place = [x, y].map(|v| ((v + BEV_RANGE_M) / cell_m).floor());
        // Comparisons with what is no number are false.
        let inside = place.iter().all(|&p| p >= 0.0 && p < BEV_SIDE as f32);
        let bin = HEIGHTS_M.iter().position(|&limit| z < limit);
        let (true, true, Some(bin)) = (inside, z >= LOWEST_M, bin) else {
            continue;
        };
        let Some(cell) = features.get_mut(place[1] as usize * BEV_SIDE + place[0] as usize) else {
            continue;
        };
        cell[TOP] = match cell[COUNT] {
            0.0 => z,
            _ => cell[TOP].max(z),
        };
        cell[COUNT] += 1.0;
        cell[MEAN] += z;
        let intensity = points.intensity.get(i).copied().unwrap_or_default();
        cell[INTENSITY] += if intensity.is_finite() {
            intensity.clamp(0.0, 255.0)
        } else {
            0.0
        };
        cell[BINS + bin] = 1.0;
    }
    for cell in features.iter_mut().filter(|cell| cell[COUNT] > 0.0) {
        let count = cell[COUNT];
        cell[COUNT] = count / (count + 4.0);
        cell[TOP] /= 4.0;
        cell[MEAN] /= count * 4.0;
        cell[INTENSITY] /= count * 255.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_says_how_many_points_it_has_and_how_high_they_are() {
        let mut features = vec![[9.0; BEV_CHANNELS]; BEV_SIDE * BEV_SIDE];
        let points = Columns {
            x: &[0.1, 0.7, f32::NAN, 51.2, -51.2, 0.2],
            y: &[-0.1, -0.7, 0.0, 0.0, 51.1, -0.3],
            z: &[0.25, 1.75, 0.0, 0.0, -2.0, 9.0],
            intensity: &[100.0, 50.0, 1.0, 1.0, f32::INFINITY, 0.0],
        };
        bev_features(&points, &mut features);
        let cell = features[63 * BEV_SIDE + 64];
        assert_eq!(
            cell,
            [2.0 / 6.0, 1.75 / 4.0, 0.25, 150.0 / 510.0, 0.0, 1.0, 1.0, 0.0]
        );
        assert_eq!(
            features[127 * BEV_SIDE],
            [0.2, -0.5, -0.5, 0.0, 1.0, 0.0, 0.0, 0.0]
        );
        assert_eq!(features.iter().filter(|cell| cell[0] > 0.0).count(), 2);
    }
}
