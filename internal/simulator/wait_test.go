package simulator

import (
	"net"
	"testing"
)

// TestWaitSeesTheAPIOpen is about a wake-up that was missed: when a port that refused opened again, nobody was told.
func TestWaitSeesTheAPIOpen(t *testing.T) {
	f := newTestFleet(t, Options{})
	m := addMachine(t, f, MachineSpec{Name: "m"})
	awaitStage(t, m, "maintenance")
	for range 50 {
		if err := m.SetFault(FaultAPIDown, true); err != nil {
			t.Fatal(err)
		}
		await(t, m, "the end of the API", func(m *Machine) bool { return !m.APIUp() })
		if err := m.SetFault(FaultAPIDown, false); err != nil {
			t.Fatal(err)
		}
		await(t, m, "the API", (*Machine).APIUp)
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(m.Address().String(), "50000"), testTimeout)
		if err != nil {
			t.Fatalf("the API is said to be up, and is not: %v", err)
		}
		_ = conn.Close()
	}
}
