#![no_main]
//! See `outrider_tests::parsers::http_answer`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outrider_tests::parsers::http_answer(bytes));
