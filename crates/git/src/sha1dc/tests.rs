//! All ways of hashing and of testing agree with the `sha1` crate and with each other.

#[cfg(target_arch = "x86_64")]
use super::avx2;
use super::batch::HashBatch;
use super::block::{BLOCK, INITIAL, LANES, LaneWords, Suspect};
use super::detect::Sha1Detect;
use super::dispatch::{attacks, compress, compress_lanes, is_supported, suspects};
use super::scalar::{expand, is_attack, suspect_vectors};

use sha1::Digest;

#[test]
fn hashes_as_sha1_does() {
    if !is_supported() {
        return;
    }
    let data: Vec<u8> = (0..70_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for len in (0..300).chain(950..1100).chain([2047, 2048, 1023, 1024, 1025, 4096, 65_537, 70_000]) {
        let mut ours = Sha1Detect::new();
        // In pieces of odd sizes.
        for piece in data[..len].chunks(97 + len % 50) {
            ours.update(piece);
        }
        let (hash, collision) = ours.finish();
        assert_eq!(hash[..], sha1::Sha1::digest(&data[..len])[..], "{len}");
        assert!(!collision, "{len}");
    }
}

#[test]
fn both_ways_of_testing_conditions_agree() {
    if !is_supported() {
        return;
    }
    let mut x = 1u64;
    let mut left = 0;
    for _ in 0..2000 {
        let mut blocks = [[0u8; BLOCK]; LANES];
        for byte in blocks.as_flattened_mut() {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (x >> 56) as u8;
        }
        let masks = suspects(&blocks);
        for (block, mask) in blocks.iter().zip(masks) {
            assert_eq!(mask, suspect_vectors(&expand(block)));
            left += u32::from(mask != 0);
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every processor with AVX-512 has AVX2.
        assert_eq!(unsafe { avx2::suspects(&blocks.each_ref()) }, masks);
    }
    assert!(left < 32_000 / 20, "the conditions leave {left} of 32000 random blocks");
}

/// The first 320 bytes of the two SHAttered files (shattered.io): whatever follows them, they collide.
#[test]
fn a_real_attack_is_found() {
    let hex = include_str!("../../tests/shattered-prefix.hex");
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let file: Vec<u8> =
        digits.chunks(2).map(|p| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap()).collect();
    assert_eq!(file.len(), 320);
    for before in [0, 1, 15, 40] {
        if !is_supported() {
            break;
        }
        // The attack is made for one chaining value: it works only at the start.
        let mut ours = Sha1Detect::new();
        ours.update(&vec![0; before * BLOCK]);
        ours.update(&file);
        ours.update(b"and more");
        assert_eq!(ours.finish().1, before == 0, "{before} blocks before");
    }
    assert!(sha1_checked::Sha1::try_digest(&file).has_collision());
    if !is_supported() {
        return;
    }
    // Among other messages, in every lane, and alone.
    for others in [0usize, 2, 20, 100] {
        for at in 0..=others {
            let mut batch = HashBatch::new();
            for n in 0..=others {
                // An attack on git would have the object's header in the attacked blocks: here there is none.
                let data = if n == at { file.clone() } else { vec![n as u8; n * 40] };
                batch.push(b"", data);
            }
            batch.flush();
            let all: Vec<_> = std::iter::from_fn(|| batch.pop()).collect();
            assert_eq!(all.len(), others + 1);
            for hashed in all {
                assert_eq!(hashed.has_collision, hashed.data == file, "{at} of {others}");
                assert_eq!(hashed.hash[..], sha1::Sha1::digest(&hashed.data)[..]);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn lanes_compress_as_one_does() {
    if !is_supported() {
        return;
    }
    let blocks: [[u8; BLOCK]; LANES] =
        std::array::from_fn(|n| std::array::from_fn(|i| (n * 31 + i * i) as u8));
    let mut states: [LaneWords; 5] = std::array::from_fn(|i| [INITIAL[i]; LANES]);
    for _ in 0..3 {
        let mut alone = [INITIAL; LANES];
        for (n, block) in blocks.iter().enumerate() {
            alone[n] = std::array::from_fn(|i| states[i][n]);
            compress(&mut alone[n], &[*block]);
        }
        let mut by_avx2 = states;
        // SAFETY: every processor with AVX-512 has AVX2.
        let masks = unsafe { avx2::compress(&mut by_avx2, &blocks.each_ref()) };
        assert_eq!(compress_lanes(&mut states, &blocks.each_ref()), masks);
        assert_eq!(states, by_avx2);
        for (n, alone) in alone.iter().enumerate() {
            assert_eq!(*alone, std::array::from_fn(|i| states[i][n]));
        }
    }
}

#[test]
fn both_ways_of_testing_suspects_agree() {
    if !is_supported() {
        return;
    }
    let hex = include_str!("../../tests/shattered-prefix.hex");
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let file: Vec<u8> =
        digits.chunks(2).map(|p| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap()).collect();
    let mut state = INITIAL;
    let mut suspects = Vec::new();
    for block in file.as_chunks::<BLOCK>().0 {
        let before = state;
        compress(&mut state, &[*block]);
        suspects.extend((0..32).map(|vector| Suspect { block: *block, vector, before, after: state }));
    }
    let mut found = 0;
    for start in 0..suspects.len() {
        let group = &suspects[start..suspects.len().min(start + LANES)];
        let expected = group.iter().enumerate().fold(0, |all, (n, s)| all | u16::from(is_attack(s)) << n);
        assert_eq!(attacks(group), expected, "{start}");
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every processor with AVX-512 has AVX2.
        assert_eq!(unsafe { avx2::attacks(group) }, expected, "{start}");
        found += expected.count_ones();
    }
    assert!(found > 0);
}
