package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kingpin/v2"

	"github.com/maesh/provider-ichor/internal/simulator"
	"github.com/maesh/provider-ichor/internal/simulator/control"
)

// A command talks to a fleet that another process runs.
type command func(ctx context.Context, address string, stdout io.Writer) error

func newCommands(app *kingpin.Application) map[string]command {
	commands := map[string]command{}
	add := func(cmd *kingpin.CmdClause, run command) { commands[cmd.FullCommand()] = run }

	add(app.Command("machines", "List the machines."), listMachines)
	add(app.Command("faults", "List the faults that there are."), listFaults)

	fault := app.Command("fault", "Switch a fault of a machine.")
	faultMachine := fault.Arg("machine", "Name of the machine.").Required().String()
	faultName := fault.Arg("fault", "Name of the fault; see the command faults.").Required().String()
	faultState := fault.Arg("state", "on or off.").Required().Enum("on", "off")
	add(fault, func(ctx context.Context, address string, _ io.Writer) error {
		return (&control.Client{Address: address}).SetFault(ctx, *faultMachine, *faultName, *faultState == "on")
	})

	power := app.Command("power", "Switch the power of a machine.")
	powerMachine := power.Arg("machine", "Name of the machine.").Required().String()
	powerState := power.Arg("state", "on or off.").Required().Enum("on", "off")
	add(power, func(ctx context.Context, address string, _ io.Writer) error {
		return (&control.Client{Address: address}).SetPower(ctx, *powerMachine, *powerState == "on")
	})

	rpcs := app.Command("rpcs", "List the calls that reached the machines.")
	since := rpcs.Flag("since", "Only calls with a sequence number above this.").Uint64()
	mutating := rpcs.Flag("mutating", "Only calls that may change something.").Bool()
	asJSON := rpcs.Flag("json", "Print one JSON object a line.").Bool()
	add(rpcs, func(ctx context.Context, address string, stdout io.Writer) error {
		return listRPCs(ctx, address, stdout, *since, *mutating, *asJSON)
	})
	return commands
}

func listMachines(ctx context.Context, address string, stdout io.Writer) error {
	machines, err := (&control.Client{Address: address}).Machines(ctx)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tADDRESS\tPOWER\tVERSION\tSTAGE\tREADY\tHOSTNAME\tETCD\tFAULTS")
	for _, m := range machines {
		power := "off"
		if m.PoweredOn {
			power = "on"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%t\t%s\t%s\t%s\n",
			m.Name, m.Address, power, m.TalosVersion, m.Stage, m.Ready, m.Hostname, m.Etcd, strings.Join(m.Faults, ","))
	}
	return w.Flush()
}

func listFaults(_ context.Context, _ string, stdout io.Writer) error {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	for _, f := range simulator.Faults() {
		fmt.Fprintf(w, "%s\t%s\n", f.Name, f.Doc)
	}
	return w.Flush()
}

func listRPCs(ctx context.Context, address string, stdout io.Writer, since uint64, mutating, asJSON bool) error {
	rpcs, err := (&control.Client{Address: address}).RPCs(ctx, since)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(stdout)
	for _, r := range rpcs {
		if mutating && !r.Mutating {
			continue
		}
		if asJSON {
			if err := encoder.Encode(r); err != nil {
				return fmt.Errorf("cannot print call: %w", err)
			}
			continue
		}
		code := "running"
		if r.Done {
			code = r.Code.String()
		}
		fmt.Fprintf(stdout, "%6d  %-10s  %-48s  %-16s  %s\n", r.Seq, r.Machine, r.Method, code, r.Detail)
	}
	return nil
}
