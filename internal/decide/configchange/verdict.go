package configchange

import "github.com/maesh/provider-ichor/internal/decide/facts"

// A Config says how what a machine has compares to what is declared.
type Config struct {
	// BootID is the boot that the machine was in when it was asked. In any other one it may have another configuration: the one
	// that waited on its disk.
	BootID facts.Known[string]
	// Active is whether the configuration that it runs is the declared one.
	Active facts.Known[bool]
	// Persistent is whether the one on its disk, for its next boot, is.
	Persistent facts.Known[bool]
	// NeedsReboot is whether the running configuration can become the declared one only with a reboot.
	NeedsReboot facts.Known[bool]
}

// A State is a Config in one word.
type State int

// States.
const (
	// InSync: the machine runs the declared configuration.
	InSync State = 1 + iota
	// Drifted: it does not, and can without a reboot.
	Drifted
	// Staged: it does not, and the declared one is on its disk for the next boot.
	Staged
	// NeedsReboot: it does not, and only can with a reboot, or it is not known that it can without.
	NeedsReboot
	// Unknown: what it runs could not be compared.
	Unknown
)

// Verdict sums up how a machine's configuration compares to the declared one.
func Verdict(c Config) State {
	active, known := c.Active.Get()
	switch {
	case !known:
		return Unknown
	case active && facts.Is(c.Persistent, false):
		return Drifted // Something else waits for the next boot; to apply the running one again takes it back.
	case active:
		return InSync
	case facts.Is(c.Persistent, true):
		return Staged
	case facts.Is(c.NeedsReboot, false):
		return Drifted
	}
	return NeedsReboot
}
