package machineconfig

import "slices"

// An Answer to a question that may have none. The zero Answer is none.
type Answer int

// Answers.
const (
	Yes Answer = 1 + iota
	No
	Unknown
)

// String is yes, no or unknown.
func (a Answer) String() string {
	switch a {
	case Yes:
		return "yes"
	case No:
		return "no"
	case Unknown:
	}
	return "unknown"
}

// What Talos 1.12 and 1.13 can change while they run, and what they cannot. Whatever is in neither list is not known.
var (
	immediateTop      = []string{"debug", "cluster"}
	rebootTop         = []string{"version", "persist"}
	immediateMachine  = []string{"ca", "acceptedCAs", "time", "certSANs", "install", "network", "sysfs", "sysctls", "logging", "controlPlane", "kubelet", "kernel", "registries", "pods", "seccompProfiles", "nodeAnnotations", "nodeLabels", "nodeTaints"}
	rebootMachine     = []string{"type", "token", "disks", "files", "env", "systemDiskEncryption", "udev", "baseRuntimeSpecOverrides"}
	immediateFeatures = []string{"kubernetesTalosAPIAccess", "kubePrism", "hostDNS", "imageCache", "nodeAddressSortAlgorithm"}
	rebootFeatures    = []string{"rbac", "stableHostname", "apidCheckExtKeyUsage", "diskQuotaSupport"}
)

// needsReboot tells whether Talos must reboot to go from have to want. Documents besides the main one never need it.
func needsReboot(have, want []document) Answer {
	h, w := find(have, mainDocument), find(want, mainDocument)
	if h == nil || w == nil {
		return Unknown
	}
	answer := No
	differences(h, w, nil, func(at path, _, _ any) {
		switch section(at) {
		case Yes:
			answer = Yes
		case Unknown:
			if answer == No {
				answer = Unknown
			}
		case No:
		}
	})
	return answer
}

// section tells whether Talos must reboot to change the value at this path of the main document.
func section(at path) Answer {
	switch {
	case at[0] != "machine":
		return listed(at[0], immediateTop, rebootTop)
	case len(at) > 2 && at[1] == "features":
		return listed(at[2], immediateFeatures, rebootFeatures)
	case len(at) > 1:
		return listed(at[1], immediateMachine, rebootMachine)
	}
	return Unknown
}

func listed(key string, immediate, reboot []string) Answer {
	switch {
	case slices.Contains(immediate, key):
		return No
	case slices.Contains(reboot, key):
		return Yes
	}
	return Unknown
}
