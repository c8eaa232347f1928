package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// channelSection is the one key of the file that is not a setting: the
// channels, each under its name.
const channelSection = "channels"

// document is a parsed configuration file.
type document struct {
	values  map[string]fileValue
	section *yaml.Node // the channels; nil without them
}

type fileValue struct{ text, source string }

// readFile reads the YAML file at path; an empty path is an empty document.
func readFile(path string) (*document, error) {
	d := &document{values: make(map[string]fileValue)}
	if path == "" {
		return d, nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("configuration file: it cannot be read, check path and rights: %w", err)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(raw, &root); err != nil {
		return nil, fmt.Errorf("configuration file %s is not YAML: %w", path, err)
	}
	if len(root.Content) == 0 {
		return d, nil
	}
	return d, d.read(path, root.Content[0])
}

func (d *document) read(path string, top *yaml.Node) error {
	if top.Kind != yaml.MappingNode {
		return fmt.Errorf("configuration file %s: write it as lines of `name: value`", path)
	}
	known := append(names(), channelSection)
	return eachKey(path, top, known, func(name, at string, node *yaml.Node) error {
		if name == channelSection {
			d.section = node
			return nil
		}
		text, err := nodeText(node)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", at, name, err)
		}
		d.values[name] = fileValue{text: text, source: at}
		return nil
	})
}

// eachKey walks a mapping and refuses keys that are unknown or repeated; known
// nil accepts any.
func eachKey(path string, mapping *yaml.Node, known []string, visit func(name, at string, node *yaml.Node) error) error {
	var errs []error
	seen := make(map[string]bool)
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, node := mapping.Content[i], mapping.Content[i+1]
		at := fmt.Sprintf("%s:%d", path, key.Line)
		switch {
		case seen[key.Value]:
			errs = append(errs, fmt.Errorf("%s: %s is there twice: keep one", at, key.Value))
		case known != nil && !slices.Contains(known, key.Value):
			errs = append(errs, fmt.Errorf("%s: %s is not known, did you mean %s", at, key.Value, Nearest(key.Value, known)))
		default:
			errs = append(errs, visit(key.Value, at, node))
		}
		seen[key.Value] = true
	}
	return errors.Join(errs...)
}

// nodeText writes a value as the flag would be written.
func nodeText(node *yaml.Node) (string, error) {
	switch node.Kind {
	case yaml.ScalarNode:
		if node.Tag == "!!null" {
			return "", nil
		}
		return node.Value, nil
	case yaml.SequenceNode, yaml.MappingNode:
		return compositeText(node)
	case yaml.AliasNode:
		return nodeText(node.Alias)
	case yaml.DocumentNode:
	}
	return "", errors.New("write a plain value")
}

func compositeText(node *yaml.Node) (string, error) {
	items := make([]string, 0, len(node.Content))
	for _, child := range node.Content {
		if child.Kind != yaml.ScalarNode {
			return "", errors.New("write a list or a mapping of plain values")
		}
		items = append(items, child.Value)
	}
	if node.Kind == yaml.SequenceNode {
		return strings.Join(items, ","), nil
	}
	pairs := make([]string, 0, len(items)/2)
	for i := 0; i+1 < len(items); i += 2 {
		pairs = append(pairs, items[i]+"="+items[i+1])
	}
	return strings.Join(pairs, ","), nil
}

func readChannels(path string, section *yaml.Node) (map[string]Channel, error) {
	if section.Kind != yaml.MappingNode || len(section.Content) == 0 {
		return nil, fmt.Errorf("%s:%d: channels: write each channel under its name", path, section.Line)
	}
	channels := make(map[string]Channel)
	err := eachKey(path, section, nil, func(name, at string, node *yaml.Node) error {
		c, err := readChannel(path, name, node)
		if err != nil {
			return err
		}
		if c.Type == "" {
			return fmt.Errorf("%s: channel %s has no type: set type: sim", at, name)
		}
		channels[name] = c.withDefaults()
		return nil
	})
	return channels, err
}

// readChannel reads one entry. Here nothing is promised by default: what is not
// written down, nobody documented.
func readChannel(path, name string, node *yaml.Node) (Channel, error) {
	var c Config
	fields := make(map[string]Setting)
	var known []string
	for _, s := range channelSettings {
		key := strings.TrimPrefix(s.Name, "channel-")
		if key == "name" {
			continue
		}
		fields[key] = s
		known = append(known, key)
	}
	if node.Kind != yaml.MappingNode {
		return c.Channel, fmt.Errorf("%s:%d: channel %s: write lines of `name: value` under it", path, node.Line, name)
	}
	c.Channel.Name = name
	err := eachKey(path, node, known, func(key, at string, value *yaml.Node) error {
		text, err := nodeText(value)
		if err == nil {
			err = parse(fields[key].target(&c), text)
		}
		if err != nil {
			return fmt.Errorf("%s: channel %s: %s: %w", at, name, key, err)
		}
		return nil
	})
	return c.Channel, err
}
