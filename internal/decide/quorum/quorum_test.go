package quorum

import "testing"

func TestMajority(t *testing.T) {
	// Even numbers tolerate no more than the odd number below: that is why a count may be even only for a while.
	cases := []struct{ voters, majority, tolerance int }{
		{0, 1, 0}, {1, 1, 0}, {2, 2, 0}, {3, 2, 1}, {4, 3, 1}, {5, 3, 2}, {6, 4, 2}, {7, 4, 3},
	}
	for _, tc := range cases {
		if got := Majority(tc.voters); got != tc.majority {
			t.Errorf("Majority(%d) = %d, want %d", tc.voters, got, tc.majority)
		}
		if got := Tolerance(tc.voters); got != tc.tolerance {
			t.Errorf("Tolerance(%d) = %d, want %d", tc.voters, got, tc.tolerance)
		}
		for up := range tc.voters + 1 {
			if got, want := Holds(up, tc.voters), tc.voters > 0 && 2*up > tc.voters; got != want {
				t.Errorf("Holds(%d, %d) = %t, want %t", up, tc.voters, got, want)
			}
		}
	}
}

// Two majorities always share a voter: without it two halves of a cluster could decide differently.
func TestTwoMajoritiesMeet(t *testing.T) {
	for n := 1; n < 100; n++ {
		if 2*Majority(n) <= n {
			t.Errorf("two majorities of %d voters need not meet", n)
		}
		if Tolerance(n)+Majority(n) != n {
			t.Errorf("%d voters: majority %d and tolerance %d do not add up", n, Majority(n), Tolerance(n))
		}
	}
}
