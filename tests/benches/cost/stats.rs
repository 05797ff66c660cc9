//! Medians, and the clock.

pub use epitaph_tests::sys::boot_now as now;

/// Of no values: NaN, which no goal is met by.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// Of the pairs taken side by side: what drifts in between, drifts in both.
pub fn median_of_pairs(of: &[f64], than: &[f64], pair: fn(f64, f64) -> f64) -> f64 {
    let pairs: Vec<f64> = of.iter().zip(than).map(|(&a, &b)| pair(a, b)).collect();
    median(&pairs)
}
