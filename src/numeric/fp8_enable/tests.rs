//! The lists of every engine, written out by hand; the bytes of the records; the refusals.

use std::cell::RefCell;

use super::*;
use crate::numeric::NeuronArch;

/// A layout in which every answer tells what was asked: addresses are numbers of their own, values too.
struct Telling {
    dma_engines: u32,
    asked: RefCell<Vec<String>>,
}

impl Telling {
    fn new() -> Self {
        Self {
            dma_engines: 2,
            asked: RefCell::default(),
        }
    }

    fn note(&self, question: String) {
        self.asked.borrow_mut().push(question);
    }
}

impl RegisterLayout for Telling {
    fn is_capable(&self, arch: NeuronArch) -> bool {
        arch != NeuronArch::V1
    }

    fn dma_engines(&self, _: NeuronArch) -> u32 {
        self.dma_engines
    }

    fn record_fields(&self) -> RecordFields {
        RecordFields::new(40, 32, 56, 13).unwrap()
    }

    fn control_address(&self, engine: ComputeEngine) -> Result<u64, LayoutError> {
        Ok(0x1000 + engine as u64)
    }

    fn control_value(&self, engine: ComputeEngine, flags: ControlFlags) -> Result<u32, LayoutError> {
        self.note(format!(
            "{engine:?} {} {} {} {}",
            flags.range_extension, flags.ocp_sat, flags.sis, flags.sns
        ));
        Ok(0xC0)
    }

    fn emax_address(&self) -> Result<u64, LayoutError> {
        Ok(0x2000)
    }

    fn emax_value(&self, e4m3: u32, e5m2: u32) -> Result<u32, LayoutError> {
        Ok(e4m3 * 1000 + e5m2)
    }

    fn ocp_address(&self, dma: u32, selector: Selector) -> Result<u64, LayoutError> {
        Ok(0x10_0000 + u64::from(dma) * 0x1000 + selector as u64)
    }

    fn ocp_value(
        &self,
        range_extension: bool,
        ocp_sat: bool,
        selector: Selector,
    ) -> Result<u32, LayoutError> {
        self.note(format!("ocp {range_extension} {ocp_sat}"));
        Ok(0xA0 + selector as u32)
    }

    fn non_ocp_address(&self, dma: u32, selector: Selector) -> Result<u64, LayoutError> {
        Ok(0x20_0000 + u64::from(dma) * 0x1000 + selector as u64)
    }

    fn non_ocp_value(&self, sis: bool, sns: bool, selector: Selector) -> Result<u32, LayoutError> {
        self.note(format!("non-ocp {sis} {sns}"));
        Ok(0xB0 + selector as u32)
    }
}

fn write(address: u64, value: u32) -> PreambleRecord {
    PreambleRecord::Write { address, value }
}

fn read(address: u64) -> PreambleRecord {
    PreambleRecord::DummyRead { address }
}

fn flags(range_extension: bool, ocp_sat: bool, sis: bool, sns: bool) -> Fp8ConvConfig {
    Fp8ConvConfig {
        fp8_range_extension: range_extension,
        ocp_sat,
        sis,
        sns,
        ..Fp8ConvConfig::default()
    }
}

fn records(engine: EngineType) -> Vec<PreambleRecord> {
    let preamble = fp8_preamble(NeuronArch::V4, engine, &Fp8ConvConfig::default(), &Telling::new()).unwrap();
    assert!(matches!(preamble, Preamble::Records(_)));
    preamble.records().to_vec()
}

#[test]
fn pe_sets_up_itself_and_every_dma_engine() {
    assert_eq!(
        records(EngineType::PE),
        [
            write(0x1000, 0xC0),
            write(0x10_0001, 0xA1),
            write(0x10_0000, 0xA0),
            write(0x20_0001, 0xB1),
            write(0x20_0000, 0xB0),
            write(0x10_1001, 0xA1),
            write(0x10_1000, 0xA0),
            write(0x20_1001, 0xB1),
            write(0x20_1000, 0xB0),
            read(0x1000),
        ]
    );
}

#[test]
fn act_and_pool_set_up_one_register() {
    assert_eq!(records(EngineType::ACT), [write(0x1001, 0xC0), read(0x1001)]);
    assert_eq!(records(EngineType::POOL), [write(0x1002, 0xC0), read(0x1002)]);
}

#[test]
fn dve_sets_the_largest_exponents_too_and_reads_both_back() {
    assert_eq!(
        records(EngineType::DVE),
        [
            write(0x1003, 0xC0),
            write(0x2000, 8015),
            read(0x1003),
            read(0x2000)
        ]
    );
}

#[test]
fn engines_beyond_the_four_need_nothing_and_say_so() {
    for engine in [EngineType::SP, EngineType(5), EngineType(u32::MAX)] {
        let layout = Telling::new();
        let preamble = fp8_preamble(NeuronArch::V2, engine, &Fp8ConvConfig::default(), &layout).unwrap();
        assert_eq!(preamble, Preamble::NotNeeded { engine });
        assert!(preamble.records().is_empty() && preamble.to_bytes(&layout).is_empty());
    }
}

#[test]
fn an_architecture_without_the_registers_is_refused_whatever_the_engine() {
    for engine in [EngineType::PE, EngineType::SP, EngineType(77)] {
        let refusal = fp8_preamble(NeuronArch::V1, engine, &Fp8ConvConfig::default(), &Telling::new());
        assert_eq!(refusal, Err(Fp8EnableError::NotCapable { arch: NeuronArch::V1 }));
    }
    let assumed = AssumedLayout::default();
    let capable: Vec<_> = NeuronArch::ALL
        .iter()
        .filter(|&&arch| fp8_preamble(arch, EngineType::SP, &Fp8ConvConfig::default(), &assumed).is_ok())
        .collect();
    assert_eq!(capable, [&NeuronArch::V4]);
}

#[test]
fn each_packing_gets_its_own_flags() {
    // Only one flag of the four is set at a time.
    for (at, expected) in [
        (
            0,
            [
                "Pe true false false false",
                "ocp true false",
                "non-ocp false false",
            ],
        ),
        (
            1,
            [
                "Pe false true false false",
                "ocp false true",
                "non-ocp false false",
            ],
        ),
        (
            2,
            [
                "Pe false false true false",
                "ocp false false",
                "non-ocp true false",
            ],
        ),
        (
            3,
            [
                "Pe false false false true",
                "ocp false false",
                "non-ocp false true",
            ],
        ),
    ] {
        let layout = Telling {
            dma_engines: 1,
            ..Telling::new()
        };
        let config = flags(at == 0, at == 1, at == 2, at == 3);
        fp8_preamble(NeuronArch::V4, EngineType::PE, &config, &layout).unwrap();
        let [control, ocp, non_ocp] = expected;
        assert_eq!(layout.asked.into_inner(), [control, ocp, ocp, non_ocp, non_ocp]);
    }
}

#[test]
fn records_have_their_constant_bytes_and_the_fields_of_the_layout() {
    let layout = Telling::new();
    let fields = layout.record_fields();
    let mut expected = [0_u8; 64];
    (expected[0], expected[1], expected[12]) = (0xA5, 0x10, 4);
    expected[32..36].copy_from_slice(&[0xEF, 0xBE, 0xAD, 0xDE]);
    expected[40..48].copy_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(
        write(0x0102_0304_0506_0708, 0xDEAD_BEEF).to_bytes(&fields),
        expected
    );
    let mut expected = [0_u8; 64];
    (expected[0], expected[1], expected[12], expected[13]) = (0xAA, 0x10, 9, 0x80);
    expected[56..64].copy_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(read(0x0102_0304_0506_0708).to_bytes(&fields), expected);
    let preamble = fp8_preamble(
        NeuronArch::V4,
        EngineType::DVE,
        &Fp8ConvConfig::default(),
        &layout,
    )
    .unwrap();
    let bytes = preamble.to_bytes(&layout);
    let opcodes: Vec<u8> = bytes.chunks(64).map(|record| record[0]).collect();
    assert_eq!(opcodes, [0xA5, 0xA5, 0xAA, 0xAA]);
    assert_eq!(bytes[64 + 32..64 + 36], 8015_u32.to_le_bytes());
}

#[test]
fn the_assumed_packings_lose_no_flag() {
    let layout = AssumedLayout {
        dma_engines: 1,
        ..AssumedLayout::default()
    };
    for bits in 0..16_u32 {
        let flag = |bit: u32| bits >> bit & 1 == 1;
        let config = flags(flag(0), flag(1), flag(2), flag(3));
        for engine in (0..4).map(EngineType) {
            let preamble = fp8_preamble(NeuronArch::V4, engine, &config, &layout).unwrap();
            let values: Vec<u32> = preamble
                .to_bytes(&layout)
                .chunks(64)
                .filter(|record| record[0] == 0xA5)
                .map(|record| u32::from_le_bytes(record[24..28].try_into().unwrap()))
                .collect();
            let expected = match engine.0 {
                0 => vec![bits, bits & 3, bits & 3, bits >> 2, bits >> 2],
                3 => vec![bits, 0x000F_0008],
                _ => vec![bits],
            };
            assert_eq!(values, expected, "{engine} {bits:04b}");
        }
    }
}

#[test]
fn the_assumed_registers_are_at_their_published_offsets() {
    let layout = AssumedLayout {
        core_window: 0x7_0000_0000,
        dma_window: 0x8_0000_0000,
        dma_window_bytes: 0x10_0000,
        ..AssumedLayout::default()
    };
    let control: Vec<_> = (0..4)
        .map(|number| layout.control_address(EngineType(number).compute().unwrap()))
        .collect();
    assert_eq!(
        control,
        [
            Ok(0x7_0000_0F00),
            Ok(0x7_0000_0F08),
            Ok(0x7_0000_0F0C),
            Ok(0x7_0000_0F04)
        ]
    );
    assert_eq!(layout.emax_address(), Ok(0x7_0000_032C));
    assert_eq!(layout.ocp_address(0, Selector::Zero), Ok(0x8_0000_2C00));
    assert_eq!(layout.ocp_address(1, Selector::One), Ok(0x8_0010_2C10));
    assert_eq!(layout.non_ocp_address(0, Selector::Zero), Ok(0x8_0000_2C04));
    assert_eq!(layout.non_ocp_address(15, Selector::One), Ok(0x8_00F0_2C14));
    let pe = fp8_preamble(NeuronArch::V4, EngineType::PE, &Fp8ConvConfig::default(), &layout).unwrap();
    let mut addresses: Vec<u64> = pe
        .records()
        .iter()
        .filter_map(|record| match record {
            PreambleRecord::Write { address, .. } => Some(*address),
            PreambleRecord::DummyRead { .. } => None,
        })
        .collect();
    assert_eq!(addresses.len(), 1 + 4 * 16);
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), 1 + 4 * 16, "two registers share an address");
}

#[test]
fn fields_that_collide_or_leave_the_record_are_refused() {
    assert_eq!(RecordFields::new(16, 24, 16, 24), Ok(RecordFields::default()));
    assert!(RecordFields::new(13, 21, 56, 13).is_ok());
    for (offsets, refusal) in [
        (
            (12, 24, 16, 24),
            "the write's address starts at byte 12; bytes 0 to 12 hold header, events and mode",
        ),
        (
            (16, 0, 16, 24),
            "the write's value starts at byte 0; bytes 0 to 12 hold header, events and mode",
        ),
        (
            (57, 24, 16, 24),
            "the write's address of 8 byte(s) at byte 57 leaves the record of 64",
        ),
        (
            (16, 61, 16, 24),
            "the write's value of 4 byte(s) at byte 61 leaves the record of 64",
        ),
        (
            (16, 24, 16, 64),
            "the read's marker of 1 byte(s) at byte 64 leaves the record of 64",
        ),
        (
            (usize::MAX, 24, 16, 24),
            "the write's address of 8 byte(s) at byte 18446744073709551615 leaves the record of 64",
        ),
        (
            (16, 23, 16, 24),
            "the write's address and the write's value overlap",
        ),
        (
            (20, 17, 16, 24),
            "the write's address and the write's value overlap",
        ),
        (
            (16, 24, 16, 16),
            "the read's address and the read's marker overlap",
        ),
    ] {
        let (a, b, c, d) = offsets;
        assert_eq!(RecordFields::new(a, b, c, d).unwrap_err().to_string(), refusal);
    }
}

#[test]
fn what_a_layout_cannot_hold_is_an_error() {
    let preamble = |engine, config: &Fp8ConvConfig, layout: &AssumedLayout| {
        fp8_preamble(NeuronArch::V4, engine, config, layout)
            .unwrap_err()
            .to_string()
    };
    let default = Fp8ConvConfig::default();
    let wide = Fp8ConvConfig {
        emax_fp8_e5m2: 65_536,
        ..default
    };
    assert_eq!(
        preamble(EngineType::DVE, &wide, &AssumedLayout::default()),
        "emax_fp8_e5m2 is 65536, above 65535, the largest that its register holds"
    );
    // Only DVE looks at the largest exponents.
    assert!(fp8_preamble(NeuronArch::V4, EngineType::PE, &wide, &AssumedLayout::default()).is_ok());
    let beyond = AssumedLayout {
        core_window: u64::MAX - 0xF07,
        ..AssumedLayout::default()
    };
    assert_eq!(
        preamble(EngineType::ACT, &default, &beyond),
        "the register 0xf08 bytes into the window at 0xfffffffffffff0f8 lies beyond 64 bits"
    );
    assert!(fp8_preamble(NeuronArch::V4, EngineType::DVE, &default, &beyond).is_ok());
    let apart = AssumedLayout {
        dma_window_bytes: u64::MAX,
        ..AssumedLayout::default()
    };
    assert!(preamble(EngineType::PE, &default, &apart).contains("lies beyond 64 bits"));
    let many = AssumedLayout {
        dma_engines: 33,
        ..AssumedLayout::default()
    };
    assert_eq!(
        preamble(EngineType::PE, &default, &many),
        "33 DMA engines for one core; there can be at most 32"
    );
    assert_eq!(
        preamble(
            EngineType::PE,
            &default,
            &AssumedLayout {
                capable: vec![],
                ..many
            }
        ),
        "architecture v4 has no registers for conversions of 8-bit floats: the model cannot be loaded"
    );
}

#[test]
fn a_policy_is_read_from_its_sixteen_bytes_and_written_back() {
    let bytes = [1, 0xD1, 0xD2, 0xD3, 8, 0, 0, 0, 0x0F, 0x01, 0, 0, 0, 1, 1, 0xDF];
    let config = Fp8ConvConfig {
        fp8_range_extension: true,
        emax_fp8_e4m3: 8,
        emax_fp8_e5m2: 0x010F,
        ocp_sat: false,
        sis: true,
        sns: true,
        padding: [0xD1, 0xD2, 0xD3, 0xDF],
    };
    assert_eq!(Fp8ConvConfig::parse(&bytes), Ok(config));
    assert_eq!(config.to_bytes(), bytes);
    for (offset, field) in [
        (0, "fp8_range_extension"),
        (12, "ocp_sat"),
        (13, "sis"),
        (14, "sns"),
    ] {
        for value in 0..=u8::MAX {
            let mut changed = bytes;
            changed[offset] = value;
            let read = Fp8ConvConfig::parse(&changed);
            match value {
                0 | 1 => assert_eq!(read.map(|config| config.to_bytes()), Ok(changed)),
                _ => assert_eq!(read, Err(Fp8ConfigError::Boolean { offset, field, value })),
            }
        }
    }
    assert_eq!(
        Fp8ConvConfig::parse(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0])
            .unwrap_err()
            .to_string(),
        "byte 13: sis is 2 (0x02), but must be 0 or 1"
    );
    assert_eq!(
        Fp8ConvConfig::parse(&bytes[..15]).unwrap_err().to_string(),
        "an FP8 conversion policy has 16 bytes, not 15"
    );
}
