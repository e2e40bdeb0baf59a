package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// A Fleet is the control API of the simulated machines: what a person in front of them would see and do.
type Fleet struct{ address string }

// A Machine is what is seen of one machine from outside of the product.
type Machine struct {
	Name        string `json:"name"`
	Address     string `json:"address"`
	UUID        string `json:"uuid"`
	Stage       string `json:"stage"`
	Ready       bool   `json:"ready"`
	BootID      string `json:"bootID"`
	Hostname    string `json:"hostname"`
	Etcd        string `json:"etcd"`
	EtcdHealthy bool   `json:"etcdHealthy"`
	PoweredOn   bool   `json:"poweredOn"`
}

// An RPC is one call that reached a machine.
type RPC struct {
	Seq uint64 `json:"seq"`
	// Time is when it arrived.
	Time     time.Time `json:"time"`
	Machine  string    `json:"machine"`
	Method   string    `json:"method"`
	Peer     string    `json:"peer"`
	Mutating bool      `json:"mutating"`
	Detail   string    `json:"detail"`
	// Forwarded are the machines that it was passed on to, where it shows again.
	Forwarded []string `json:"forwarded"`
	// Done is false while the call runs; Code means nothing until then, and 0 is OK.
	Done bool `json:"done"`
	Code int  `json:"code"`
}

// Machines are all machines.
func (f *Fleet) Machines(ctx context.Context) ([]Machine, error) {
	var out []Machine
	err := f.call(ctx, http.MethodGet, "/machines", nil, &out)
	return out, err
}

// At is the machine at an address, as it is seen from outside of the product.
func (f *Fleet) At(ctx context.Context, address string) (Machine, error) {
	all, err := f.Machines(ctx)
	if err != nil {
		return Machine{}, err
	}
	i := slices.IndexFunc(all, func(m Machine) bool { return m.Address == address })
	if i < 0 {
		return Machine{}, fmt.Errorf("no machine is at %q", address)
	}
	return all[i], nil
}

// RPCs are all calls after one of the given number, in order.
func (f *Fleet) RPCs(ctx context.Context, since uint64) ([]RPC, error) {
	var out []RPC
	err := f.call(ctx, http.MethodGet, "/rpcs", url.Values{"since": {strconv.FormatUint(since, 10)}}, &out)
	return out, err
}

// LastCall is the number of the latest call that reached any machine; 0 if none did.
func (f *Fleet) LastCall(ctx context.Context) (uint64, error) {
	all, err := f.RPCs(ctx, 0)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	return all[len(all)-1].Seq, nil
}

// Changes are the calls after the given one that changed, or could have changed, a machine: of all machines if the name is
// empty.
func (f *Fleet) Changes(ctx context.Context, machine string, after uint64) ([]RPC, error) {
	all, err := f.RPCs(ctx, after)
	if err != nil {
		return nil, err
	}
	var out []RPC
	for _, r := range all {
		if r.Mutating && (machine == "" || r.Machine == machine) {
			out = append(out, r)
		}
	}
	return out, nil
}

// SetFault switches a fault of a machine.
func (f *Fleet) SetFault(ctx context.Context, machine, fault string, on bool) error {
	return f.call(ctx, http.MethodPost, "/machines/"+machine+"/faults/"+fault, url.Values{"on": {strconv.FormatBool(on)}}, nil)
}

// SetPower switches the power of a machine. When it returns after a cut, the machine is dark.
func (f *Fleet) SetPower(ctx context.Context, machine string, on bool) error {
	return f.call(ctx, http.MethodPost, "/machines/"+machine+"/power", url.Values{"on": {strconv.FormatBool(on)}}, nil)
}

func (f *Fleet) call(ctx context.Context, method, path string, query url.Values, out any) error {
	u := url.URL{Scheme: "http", Host: f.address, Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), http.NoBody)
	if err != nil {
		return fmt.Errorf("cannot ask the fleet for %s: %w", path, err)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("cannot ask the fleet for %s: %w", path, err)
	}
	defer answer.Body.Close() //nolint:errcheck // read only
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return fmt.Errorf("cannot read the fleet's answer to %s: %w", path, err)
	}
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("the fleet refuses %s: %s", path, body)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("cannot read the fleet's answer to %s: %w", path, err)
	}
	return nil
}
