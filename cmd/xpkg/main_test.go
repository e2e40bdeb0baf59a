package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/maesh/provider-ichor/internal/xpkg"
)

func TestParse(t *testing.T) {
	options := xpkg.Options{Root: ".", Registry: "registry.example.org/ichor", Version: "v0.1.0", Architectures: xpkg.DefaultArchitectures()}
	address := []string{"--registry=registry.example.org/ichor", "--tag=v0.1.0"}
	for name, tc := range map[string]struct {
		args []string
		want request
	}{
		"Build": {args: append(address, "build"), want: request{options: options, dir: "bin/packages"}},
		"Push":  {args: append(address, "push"), want: request{options: options}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parse(tc.args)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(request{})); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
	if _, err := parse([]string{"build"}); err == nil {
		t.Error("packages without an address are no error")
	}
}
