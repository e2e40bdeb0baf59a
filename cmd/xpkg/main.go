// Command xpkg builds the Crossplane packages of this repository and pushes them to a registry.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kingpin/v2"

	"github.com/maesh/provider-ichor/internal/commandline"
	"github.com/maesh/provider-ichor/internal/xpkg"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "xpkg:", err)
		os.Exit(1)
	}
}

// A request is what the command line asks for.
type request struct {
	options xpkg.Options
	// dir is where the packages are put as files; empty if they are pushed.
	dir string
}

// parse reads the command line. A flag called --version would be taken for kingpin's own, and no default would be set any more.
func parse(args []string) (request, error) {
	var r request
	app := kingpin.New("xpkg", "Builds and pushes the packages of provider-ichor: the same source gives the same bytes.")
	app.Flag("root", "Root of the source tree.").Default(".").StringVar(&r.options.Root)
	app.Flag("registry", "Where the packages go, and where they look for each other: registry.example.org/ichor.").Required().StringVar(&r.options.Registry)
	app.Flag("tag", "Semantic version of the packages.").Required().StringVar(&r.options.Version)
	app.Flag("arch", "Architecture to build for; repeatable.").Default(xpkg.DefaultArchitectures()...).StringsVar(&r.options.Architectures)
	build := app.Command("build", "Build the packages into files.")
	dir := build.Flag("output", "Directory of the files.").Default("bin/packages").String()
	app.Command("push", "Build the packages and push them.")
	commandline.NameFlags(app)
	command, err := app.Parse(args)
	if command == build.FullCommand() {
		r.dir = *dir
	}
	return r, err
}

func run(args []string) error {
	r, err := parse(args)
	if err != nil {
		return err
	}
	o := r.options
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for _, p := range xpkg.All() {
		built, err := xpkg.Build(ctx, o, p)
		if err != nil {
			return err
		}
		digest, err := built.Digest()
		if err != nil {
			return fmt.Errorf("cannot compute the digest of %s: %w", p.Name, err)
		}
		if r.dir == "" {
			err = xpkg.Push(ctx, o, p, built)
		} else {
			_, err = xpkg.Save(o, p, built, r.dir)
		}
		if err != nil {
			return err
		}
		fmt.Printf("%s@%s\n", o.Reference(p), digest)
	}
	return nil
}
