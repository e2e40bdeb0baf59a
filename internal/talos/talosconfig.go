package talos

import (
	"encoding/base64"
	"errors"
	"fmt"

	"go.yaml.in/yaml/v4"
)

// A talosconfig is as much of the file as is used. The machinery's own parser is not: it panics on a context without
// anything in it, and this file comes from a person.
type talosconfig struct {
	Context  string                        `yaml:"context"`
	Contexts map[string]talosconfigContext `yaml:"contexts"`
}

type talosconfigContext struct {
	CA  string `yaml:"ca"`
	Crt string `yaml:"crt"`
	Key string `yaml:"key"`
}

// ParseTalosconfig returns the credentials of the current context of a talosconfig. Its endpoints and nodes are not used:
// every machine is asked at its own address. The error holds nothing of the keys.
func ParseTalosconfig(data []byte) (Credentials, error) {
	var cfg talosconfig
	if err := yaml.Unmarshal(data, &cfg); err != nil {
		return Credentials{}, errors.New("cannot parse the talosconfig: it is no valid YAML of that form")
	}
	ctx, ok := cfg.Contexts[cfg.Context]
	if !ok {
		return Credentials{}, fmt.Errorf("the talosconfig has no context %q, which it names as the current one", cfg.Context)
	}
	var c Credentials
	for _, f := range []struct {
		name, value string
		into        *[]byte
	}{{"ca", ctx.CA, &c.CA}, {"crt", ctx.Crt, &c.Cert}, {"key", ctx.Key, &c.Key}} {
		var err error
		*f.into, err = base64.StdEncoding.DecodeString(f.value)
		if err != nil || len(*f.into) == 0 {
			return Credentials{}, fmt.Errorf("context %q of the talosconfig has no valid %q: it must be the base64 of a PEM block", cfg.Context, f.name)
		}
	}
	return c, nil
}
