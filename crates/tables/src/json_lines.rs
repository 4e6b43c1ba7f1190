//! Rows as JSON, in lines or in an array. Bytes are hexadecimal, as `arrow-json` prints them, but from a
//! table of digits: every row has several ids.

use std::io::Write;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, BinaryArray};
use arrow_json::WriterBuilder;
use arrow_json::writer::{
    Encoder, EncoderFactory, EncoderOptions, JsonArray, LineDelimited, NullableEncoder,
};
use arrow_json::{ArrayWriter, LineDelimitedWriter};
use arrow_schema::{ArrowError, DataType, FieldRef};

/// Returns a writer of rows to `out`.
pub(crate) fn json_lines<W: Write>(out: W) -> LineDelimitedWriter<W> {
    WriterBuilder::new().with_encoder_factory(Arc::new(HexEncoders)).build::<W, LineDelimited>(out)
}

/// Returns a writer of an array of rows to `out`.
pub(crate) fn json_array<W: Write>(out: W) -> ArrayWriter<W> {
    WriterBuilder::new().with_encoder_factory(Arc::new(HexEncoders)).build::<W, JsonArray>(out)
}

#[derive(Debug)]
struct HexEncoders;

impl EncoderFactory for HexEncoders {
    fn make_default_encoder<'a>(
        &self,
        _: &'a FieldRef,
        array: &'a dyn Array,
        _: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        if *array.data_type() != DataType::Binary {
            return Ok(None);
        }
        let encoder: Box<dyn Encoder + 'a> = Box::new(HexEncoder(array.as_binary()));
        Ok(Some(NullableEncoder::new(encoder, array.nulls().cloned())))
    }
}

/// Prints bytes as a string of hexadecimal digits.
struct HexEncoder<'a>(&'a BinaryArray);

/// The two digits of each byte.
const DIGITS: [[u8; 2]; 256] = {
    let hex = b"0123456789abcdef";
    let mut digits = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        digits[byte] = [hex[byte >> 4], hex[byte & 15]];
        byte += 1;
    }
    digits
};

impl Encoder for HexEncoder<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let bytes = self.0.value(row);
        out.reserve(2 * bytes.len() + 2);
        out.push(b'"');
        bytes.iter().for_each(|byte| out.extend_from_slice(&DIGITS[*byte as usize]));
        out.push(b'"');
    }
}
