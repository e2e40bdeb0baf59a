package simulator

import (
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
)

// TestAnsweringIsToldFirst holds the answer to a call that has changed something until whoever is told of it lets it go. What
// changes nothing is not told, nor what was refused.
func TestAnsweringIsToldFirst(t *testing.T) {
	told, release := make(chan RPC, 10), make(chan struct{})
	f := newTestFleet(t, Options{Answering: func(r RPC) { told <- r; <-release }})
	m := addMachine(t, f, MachineSpec{Name: "m1"})
	awaitStage(t, m, "maintenance")
	c := insecure(t, m)
	if _, err := c.MachineClient.ApplyConfiguration(testContext(t), &machineapi.ApplyConfigurationRequest{Data: []byte("nonsense")}); err == nil {
		t.Fatal("nonsense was applied")
	}
	config := newTestCluster(t, endpointOf(f)).config(t, machine.TypeWorker)
	answered := make(chan error, 1)
	go func() {
		_, err := c.MachineClient.ApplyConfiguration(testContext(t), &machineapi.ApplyConfigurationRequest{Data: config})
		answered <- err
	}()
	select {
	case r := <-told:
		if r.Method != machineService+"ApplyConfiguration" || r.Machine != "m1" || !r.Done {
			t.Errorf("told of %+v", r)
		}
	case err := <-answered:
		t.Fatalf("it was answered before anybody was told: %v", err)
	case <-time.After(10 * time.Second):
		t.Fatal("nobody was told")
	}
	select {
	case err := <-answered:
		t.Fatalf("it was answered before it was let go: %v", err)
	default:
	}
	close(release)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if n := len(told); n > 0 {
		t.Errorf("%d more calls were told", n)
	}
}
