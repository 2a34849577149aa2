//! What the modules of residual networks are called.

/// Modules of one block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockNames {
    /// The block itself.
    pub block: String,
    /// Its convolutions; basic blocks have the first two.
    pub convs: [String; 3],
    /// The projection of its input, where it has one.
    pub downsample: String,
}

/// Names of a backbone of MMDetection and torchvision: `PREFIX.layer1.0.conv1`, `PREFIX.layer1.0.downsample.0`. Stages and
/// blocks count from 0.
pub fn mmdet_names(prefix: &str) -> impl Fn(usize, usize) -> BlockNames + use<> {
    let prefix = prefix.to_owned();
    move |stage, block| {
        let block = format!("{prefix}.layer{}.{block}", stage + 1);
        names(block, "downsample.0")
    }
}

/// Names of BEVDet's encoder of bird's-eye views: `PREFIX.layers.0.0.conv1`, `PREFIX.layers.0.0.downsample`.
pub fn custom_resnet_names(prefix: &str) -> impl Fn(usize, usize) -> BlockNames + use<> {
    let prefix = prefix.to_owned();
    move |stage, block| names(format!("{prefix}.layers.{stage}.{block}"), "downsample")
}

fn names(block: String, downsample: &str) -> BlockNames {
    BlockNames {
        convs: [1, 2, 3].map(|conv| format!("{block}.conv{conv}")),
        downsample: format!("{block}.{downsample}"),
        block,
    }
}
