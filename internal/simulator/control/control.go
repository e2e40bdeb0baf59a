// Package control lets another process look at a fleet of simulated machines and misuse it: HTTP with JSON on loopback, and a
// client for it. It must never do what the Talos API does: whoever wants something of Talos calls Talos.
package control

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/maesh/provider-ichor/internal/simulator"
)

// A Machine is what the control API tells of one machine.
type Machine struct {
	// Name is the fleet's name for it, Address where its Talos API listens, UUID its SMBIOS UUID.
	Name    string `json:"name"`
	Address string `json:"address"`
	UUID    string `json:"uuid"`
	// TalosVersion is what runs, or would boot.
	TalosVersion string `json:"talosVersion"`
	// PoweredOn is false after a power-off.
	PoweredOn bool `json:"poweredOn"`
	// Stage, Ready, BootID and Hostname are Talos's; empty while no Talos runs.
	Stage    string `json:"stage"`
	Ready    bool   `json:"ready"`
	BootID   string `json:"bootID"`
	Hostname string `json:"hostname"`
	// Etcd is the state of the etcd service, EtcdHealthy what its health check says; empty on a machine without etcd.
	Etcd        string `json:"etcd,omitempty"`
	EtcdHealthy bool   `json:"etcdHealthy"`
	// Faults are those that are on.
	Faults []string `json:"faults"`
}

// Handler serves the control API of a fleet:
//
//	GET  /healthz                                 ok, once the fleet is there
//	GET  /machines                                []Machine
//	GET  /rpcs?since=N                            []simulator.RPC with a sequence number above N
//	GET  /faults                                  []simulator.Fault: every fault there is
//	POST /machines/{name}/faults/{fault}?on=BOOL  switch a fault
//	POST /machines/{name}/power?on=BOOL           switch the power; off returns when the machine is dark
//
// Errors are plain text with status 400 or 404.
func Handler(f *simulator.Fleet) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /faults", func(w http.ResponseWriter, _ *http.Request) { reply(w, simulator.Faults()) })
	mux.HandleFunc("GET /machines", func(w http.ResponseWriter, _ *http.Request) {
		machines := []Machine{}
		for _, m := range f.Machines() {
			machines = append(machines, describe(m))
		}
		reply(w, machines)
	})
	mux.HandleFunc("GET /rpcs", func(w http.ResponseWriter, r *http.Request) {
		since := uint64(0)
		if text := r.URL.Query().Get("since"); text != "" {
			var err error
			if since, err = strconv.ParseUint(text, 10, 64); err != nil {
				http.Error(w, fmt.Sprintf("since=%q is not a sequence number", text), http.StatusBadRequest)
				return
			}
		}
		reply(w, f.Log().Since(since))
	})
	mux.HandleFunc("POST /machines/{name}/faults/{fault}", onMachine(f, func(m *simulator.Machine, r *http.Request, on bool) error {
		return m.SetFault(r.PathValue("fault"), on)
	}))
	mux.HandleFunc("POST /machines/{name}/power", onMachine(f, func(m *simulator.Machine, _ *http.Request, on bool) error {
		if on {
			m.PowerOn()
		} else {
			m.PowerOff()
		}
		return nil
	}))
	return mux
}

// onMachine reads what both switches have in common: the machine and the state that it is to have.
func onMachine(f *simulator.Fleet, change func(*simulator.Machine, *http.Request, bool) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		m := f.Machine(r.PathValue("name"))
		if m == nil {
			http.Error(w, fmt.Sprintf("there is no machine %q", r.PathValue("name")), http.StatusNotFound)
			return
		}
		on, err := strconv.ParseBool(r.URL.Query().Get("on"))
		if err != nil {
			http.Error(w, fmt.Sprintf("on=%q is neither true nor false", r.URL.Query().Get("on")), http.StatusBadRequest)
			return
		}
		if err := change(m, r, on); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reply(w, describe(m))
	}
}

func describe(m *simulator.Machine) Machine {
	etcd, healthy := m.EtcdState()
	return Machine{
		Name: m.Name(), Address: m.Address().String(), UUID: m.UUID(), TalosVersion: m.TalosVersion(), PoweredOn: m.PoweredOn(),
		Stage: m.Stage(), Ready: m.Ready(), BootID: m.BootID(), Hostname: m.Hostname(), Etcd: etcd, EtcdHealthy: healthy,
		Faults: m.Faults(),
	}
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a caller who left gets nothing
}
