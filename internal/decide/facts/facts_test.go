package facts

import "testing"

func TestKnown(t *testing.T) {
	var zero Known[bool]
	cases := map[string]struct {
		reason string
		k      Known[bool]
		value  bool
		known  bool
		why    string
		isTrue bool
	}{
		"Zero":    {reason: "The zero value is unknown, and says that nobody looked.", k: zero, why: "never looked at"},
		"Unknown": {reason: "Unknown is not false.", k: Unknown[bool]("connection refused"), why: "connection refused"},
		"False":   {reason: "Known to be false is known.", k: Of(false), known: true},
		"True":    {reason: "Known to be true is true.", k: Of(true), value: true, known: true, isTrue: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			value, known := tc.k.Get()
			if value != tc.value || known != tc.known || tc.k.IsKnown() != tc.known {
				t.Errorf("\n%s\nGet() = %t, %t, want %t, %t", tc.reason, value, known, tc.value, tc.known)
			}
			if got := tc.k.Why(); got != tc.why {
				t.Errorf("\n%s\nWhy() = %q, want %q", tc.reason, got, tc.why)
			}
			if got := Is(tc.k, true); got != tc.isTrue {
				t.Errorf("\n%s\nIs(true) = %t, want %t", tc.reason, got, tc.isTrue)
			}
			if got, want := Is(tc.k, false), tc.known && !tc.value; got != want {
				t.Errorf("\n%s\nIs(false) = %t, want %t", tc.reason, got, want)
			}
		})
	}
}

func TestMachine(t *testing.T) {
	c := Cluster{Machines: []Machine{{ID: "a", Name: "one"}, {ID: "b", Name: "two"}}}
	if m, ok := c.Machine("b"); !ok || m.Name != "two" {
		t.Errorf("Machine(b) = %+v, %t", m, ok)
	}
	if m, ok := c.Machine("c"); ok || m.Name != "" {
		t.Errorf("Machine(c) = %+v, %t, want none", m, ok)
	}
}

func TestApprovedControlPlanes(t *testing.T) {
	c := Cluster{Machines: []Machine{
		{Role: ControlPlane, Approved: true},
		{Role: ControlPlane, Approved: true, Deleting: true},
		{Role: ControlPlane, Approved: true, Deleting: true, Removed: true},
		{Role: ControlPlane},
		{Role: Worker, Approved: true},
	}}
	if got := c.ApprovedControlPlanes(); got != 2 {
		t.Errorf("ApprovedControlPlanes() = %d, want 2: one that is being deleted counts until it is gone", got)
	}
}
