// Command xpkg builds the Crossplane packages of this repository and pushes them to a registry.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kingpin/v2"

	"github.com/maesh/provider-ichor/internal/xpkg"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "xpkg:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	o := xpkg.Options{}
	app := kingpin.New("xpkg", "Builds and pushes the packages of provider-ichor: the same source gives the same bytes.")
	app.Flag("root", "Root of the source tree.").Default(".").StringVar(&o.Root)
	app.Flag("registry", "Where the packages go, and where they look for each other: registry.example.org/ichor.").Required().StringVar(&o.Registry)
	app.Flag("version", "Semantic version of the packages.").Required().StringVar(&o.Version)
	app.Flag("arch", "Architecture to build for; repeatable.").Default(xpkg.DefaultArchitectures()...).StringsVar(&o.Architectures)
	build := app.Command("build", "Build the packages into files.")
	dir := build.Flag("output", "Directory of the files.").Default("bin/packages").String()
	push := app.Command("push", "Build the packages and push them.")
	command, err := app.Parse(args)
	if err != nil {
		return err
	}
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
		if command == push.FullCommand() {
			err = xpkg.Push(ctx, o, p, built)
		} else {
			_, err = xpkg.Save(o, p, built, *dir)
		}
		if err != nil {
			return err
		}
		fmt.Printf("%s@%s\n", o.Reference(p), digest)
	}
	return nil
}
