package machineconfig

import "github.com/siderolabs/talos/pkg/machinery/config"

const (
	officialInstaller = "ghcr.io/siderolabs/installer"
	officialFactory   = "factory.talos.dev"
)

// InstallImage is the whole reference of an installer image: image itself if it is set, else that of a schematic of an
// image factory, else the official one for a version of Talos. Without a factory it is the official one.
func InstallImage(version, schematic, factory, image string) string {
	switch {
	case image != "":
		return image
	case schematic == "":
		return officialInstaller + ":" + version
	case factory == "":
		factory = officialFactory
	}
	name := "/metal-installer/"
	// A factory calls it so since version 1.10.
	if c, err := config.ParseContractFromVersion(version); err == nil && config.TalosVersion1_10.Greater(c) {
		name = "/installer/"
	}
	return factory + name + schematic + ":" + version
}
