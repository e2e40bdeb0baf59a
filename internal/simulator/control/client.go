package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/maesh/provider-ichor/internal/simulator"
)

// A Client calls the control API of another process.
type Client struct {
	// Address is host and port of the API.
	Address string
	// HTTP makes the requests; nil means http.DefaultClient.
	HTTP *http.Client
}

// Healthy returns nil once the fleet is there.
func (c *Client) Healthy(ctx context.Context) error {
	return c.call(ctx, http.MethodGet, "/healthz", nil, nil)
}

// Machines lists the machines.
func (c *Client) Machines(ctx context.Context) ([]Machine, error) {
	out := []Machine{}
	err := c.call(ctx, http.MethodGet, "/machines", nil, &out)
	return out, err
}

// RPCs lists the calls with a sequence number above since.
func (c *Client) RPCs(ctx context.Context, since uint64) ([]simulator.RPC, error) {
	out := []simulator.RPC{}
	err := c.call(ctx, http.MethodGet, "/rpcs", url.Values{"since": {strconv.FormatUint(since, 10)}}, &out)
	return out, err
}

// SetFault switches a fault of a machine on or off.
func (c *Client) SetFault(ctx context.Context, machine, fault string, on bool) error {
	path := "/machines/" + url.PathEscape(machine) + "/faults/" + url.PathEscape(fault)
	return c.call(ctx, http.MethodPost, path, url.Values{"on": {strconv.FormatBool(on)}}, nil)
}

// SetPower switches a machine's power on or off.
func (c *Client) SetPower(ctx context.Context, machine string, on bool) error {
	path := "/machines/" + url.PathEscape(machine) + "/power"
	return c.call(ctx, http.MethodPost, path, url.Values{"on": {strconv.FormatBool(on)}}, nil)
}

func (c *Client) call(ctx context.Context, method, path string, query url.Values, out any) error {
	target := "http://" + c.Address + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, nil)
	if err != nil {
		return fmt.Errorf("cannot call the simulator: %w", err)
	}
	client := c.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("cannot call the simulator: %w", err)
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return fmt.Errorf("cannot read the simulator's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the simulator refused: %s", strings.TrimSpace(string(body)))
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("cannot read the simulator's answer: %w", err)
	}
	return nil
}
