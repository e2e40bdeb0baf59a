// Command talossim simulates Talos machines on loopback addresses, for tests, demonstrations and an unmodified talosctl. It must
// never listen on anything but loopback.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kingpin/v2"

	"github.com/maesh/provider-ichor/internal/commandline"
)

const defaultControl = "127.0.0.1:50999"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "talossim:", err)
		os.Exit(1)
	}
}

// run parses the command line and carries it out.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	app := kingpin.New("talossim", "Simulated Talos machines on loopback addresses.")
	helped := false
	app.Terminate(func(int) { helped = true })
	app.UsageWriter(stderr)
	app.ErrorWriter(stderr)
	control := app.Flag("control", "Address of the HTTP control API, on loopback.").Default(defaultControl).String()

	serve := newServe(app)
	commands := newCommands(app)
	commandline.NameFlags(app)
	name, err := app.Parse(args)
	switch {
	case err != nil:
		return fmt.Errorf("%w (see talossim --help)", err)
	case helped:
		return nil
	case name == serve.name:
		return serve.run(ctx, *control, stdout, stderr)
	}
	command, ok := commands[name]
	if !ok {
		return errors.New("no such command: " + name)
	}
	return command(ctx, *control, stdout)
}
