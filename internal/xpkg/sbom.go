package xpkg

import (
	"bytes"
	"debug/buildinfo"
	"fmt"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// sbom lists what a binary was linked from, as the binary itself says: a CycloneDX document in JSON. It has neither a time
// nor a serial number, since both would make every build differ.
func sbom(name, version, binary string) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("cannot read what %s was linked from: %w", name, err)
	}
	main := purl(info.Main.Path, version)
	components := []cdx.Component{{
		BOMRef: purl("stdlib", info.GoVersion), Type: cdx.ComponentTypeLibrary, Name: "stdlib", Version: info.GoVersion,
		PackageURL: purl("stdlib", info.GoVersion),
	}}
	needs := []string{components[0].BOMRef}
	for _, d := range info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		c := cdx.Component{BOMRef: purl(d.Path, d.Version), Type: cdx.ComponentTypeLibrary, Name: d.Path, Version: d.Version, PackageURL: purl(d.Path, d.Version)}
		components, needs = append(components, c), append(needs, c.BOMRef)
	}

	bom := cdx.NewBOM()
	bom.SerialNumber = ""
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{
		BOMRef: main, Type: cdx.ComponentTypeApplication, Name: name, Version: version, PackageURL: main,
		Licenses: &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
	}}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: main, Dependencies: &needs}}

	var out bytes.Buffer
	encoder := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true)
	if err := encoder.Encode(bom); err != nil {
		return nil, fmt.Errorf("cannot write the bill of materials of %s: %w", name, err)
	}
	return out.Bytes(), nil
}

func purl(module, version string) string { return "pkg:golang/" + module + "@" + version }
