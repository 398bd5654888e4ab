// SPDX-License-Identifier: Apache-2.0
//! Deterministic mutation of valid inputs: the same seed gives the same inputs.

/// SplitMix64, which is small and sufficiently random for choices.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates a generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = limit.max(1) as u64;
        usize::try_from(self.draw() % limit).unwrap_or_default()
    }
}

/// A generator of inputs.
#[derive(Debug, Clone)]
pub struct Mutator<'a> {
    seeds: &'a [Vec<u8>],
    words: &'a [&'a str],
    random: Random,
}

impl<'a> Mutator<'a> {
    /// Creates a generator that mutates `seeds` and inserts `words`.
    pub fn new(seeds: &'a [Vec<u8>], words: &'a [&'a str], seed: u64) -> Self {
        Self {
            seeds,
            words,
            random: Random::new(seed),
        }
    }

    /// Returns the next input: a valid one with one to eight changes.
    pub fn input(&mut self) -> Vec<u8> {
        let mut input = self.seed();
        for _ in 0..=self.random.below(8) {
            self.change(&mut input);
        }
        input
    }

    fn seed(&mut self) -> Vec<u8> {
        let at = self.random.below(self.seeds.len());
        self.seeds.get(at).cloned().unwrap_or_default()
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.random.below(input.len() + 1);
        let end = at + self.random.below(input.len() + 1 - at);
        match self.random.below(7) {
            0 => drop(input.drain(at..end)),
            1 => {
                let copy = input[at..end].to_vec();
                input.splice(at..at, copy);
            }
            2 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << self.random.below(8);
                }
            }
            3 => {
                let other = self.seed();
                let from = self.random.below(other.len() + 1);
                input.splice(at..end, other[from..].iter().copied());
            }
            // Sizes and offsets: 0, 1, the largest value, and the values around a change of sign.
            4 => {
                let number = [0, 1, u64::MAX, 1 << 63, u64::MAX >> 1, 0x7FFF_FFFF_7FFF_FFFF][self.random.below(6)];
                let length = (1 << self.random.below(4)).min(input.len() - at);
                input[at..at + length].copy_from_slice(&number.to_le_bytes()[..length]);
            }
            _ => {
                let word = self.random.below(self.words.len());
                let word = self.words.get(word).map(|word| word.as_bytes()).unwrap_or_default();
                input.splice(at..at, word.iter().copied());
            }
        }
        // Repeated duplication grows without limit, and long inputs reach no other code than short ones.
        input.truncate(4096);
    }
}
