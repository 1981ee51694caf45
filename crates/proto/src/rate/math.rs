//! The few functions that the laws need beside the four operations, made of these alone: what a law
//! decides must not depend on a platform's library, or no run could be repeated elsewhere.

/// ln 2.
const LN_2: f64 = std::f64::consts::LN_2;

/// The natural logarithm of `x`, which is above zero.
pub(crate) fn ln(x: f64) -> f64 {
    let (mut x, mut twos) = (x.max(f64::MIN_POSITIVE), 0.0);
    while x > 1.5 {
        (x, twos) = (x / 2.0, twos + 1.0);
    }
    while x < 0.75 {
        (x, twos) = (x * 2.0, twos - 1.0);
    }
    // ln x = 2 artanh((x - 1) / (x + 1)), and |z| is at most a fifth.
    let z = (x - 1.0) / (x + 1.0);
    let (mut power, mut sum) = (z, 0.0);
    for odd in (1..40).step_by(2) {
        sum += power / f64::from(odd);
        power *= z * z;
    }
    2.0 * sum + twos * LN_2
}

/// e to the power of `x`, which is not far from zero.
pub(crate) fn exp(x: f64) -> f64 {
    let (mut x, mut squares) = (x, 0);
    while x.abs() > 0.5 && squares < 60 {
        (x, squares) = (x / 2.0, squares + 1);
    }
    let (mut term, mut sum) = (1.0, 1.0);
    for n in 1..20 {
        term *= x / f64::from(n);
        sum += term;
    }
    for _ in 0..squares {
        sum *= sum;
    }
    sum
}

/// `x` to the power of `y`, for `x` above zero.
pub(crate) fn pow(x: f64, y: f64) -> f64 {
    exp(y * ln(x))
}

/// The cube root of `x`, which is not below zero.
pub(crate) fn cube_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let mut root = pow(x, 1.0 / 3.0);
    for _ in 0..2 {
        root -= (root * root * root - x) / (3.0 * root * root);
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_what_the_library_has() {
        for n in 1..2000 {
            let x = f64::from(n) * f64::from(n) / 1000.0;
            assert!((ln(x) - x.ln()).abs() < 1e-12 * x.ln().abs().max(1.0), "{x}");
            assert!((cube_root(x) - x.cbrt()).abs() < 1e-9 * x, "{x}");
            assert!((pow(x, -1.2) / x.powf(-1.2) - 1.0).abs() < 1e-9, "{x}");
        }
        assert_eq!((cube_root(0.0), exp(0.0)), (0.0, 1.0));
    }
}
