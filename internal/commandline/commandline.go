// Package commandline has what is wrong on a command line named by its flag. It must never know what any flag means.
package commandline

import (
	"fmt"

	"github.com/alecthomas/kingpin/v2"
)

// A group has flags and commands: an application, or one of its commands.
type group interface {
	GetFlag(name string) *kingpin.FlagClause
	GetCommand(name string) *kingpin.CmdClause
}

// NameFlags has each error about the value of a flag name that flag and the value, which kingpin leaves out, whether it comes
// from the command line or from the environment. Call it when all flags are there, before Parse.
func NameFlags(app *kingpin.Application) {
	m := app.Model()
	nameFlags(app, m.Flags, m.Commands)
}

func nameFlags(g group, flags []*kingpin.FlagModel, commands []*kingpin.CmdModel) {
	for _, f := range flags {
		g.GetFlag(f.Name).SetValue(named{Value: f.Value, flag: f.Name})
	}
	for _, c := range commands {
		nameFlags(g.GetCommand(c.Name), c.Flags, c.Commands)
	}
}

// named is a value that knows of which flag it is.
type named struct {
	kingpin.Value

	flag string
}

func (n named) Set(text string) error {
	if err := n.Value.Set(text); err != nil {
		return fmt.Errorf("cannot read --%s=%q: %w", n.flag, text, err)
	}
	return nil
}

// IsBoolFlag tells whether the flag stands without a value. Kingpin looks for this method, and would not find the value's own.
func (n named) IsBoolFlag() bool {
	v, ok := n.Value.(interface{ IsBoolFlag() bool })
	return ok && v.IsBoolFlag()
}

// IsCumulative tells whether the flag may be repeated. See IsBoolFlag.
func (n named) IsCumulative() bool {
	v, ok := n.Value.(interface{ IsCumulative() bool })
	return ok && v.IsCumulative()
}
