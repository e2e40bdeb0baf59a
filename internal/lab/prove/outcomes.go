package prove

import (
	"fmt"
	"strings"
)

// readTold counts the faults of the catalogue by what the provider is to tell: the texts that the fault suite holds, in which
// each fault has a heading and below it the condition with its reason.
func readTold(text string) (map[string]int, error) {
	out := map[string]int{}
	fault := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		name, heading := strings.CutPrefix(line, "## ")
		switch {
		case heading && fault != "":
			return nil, fmt.Errorf("fault %q has no outcome", fault)
		case heading:
			fault = name
		case fault != "" && line != "":
			out[line]++
			fault = ""
		}
	}
	if fault != "" {
		return nil, fmt.Errorf("fault %q has no outcome", fault)
	}
	return out, nil
}
