package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/settleonce/settleonce/internal/config"
)

// textValue is a flag of a setting: it takes any text, since config reads and
// judges it together with the other sources.
type textValue struct{ text, kind string }

// String implements pflag.Value.
func (v *textValue) String() string { return v.text }

// Set implements pflag.Value.
func (v *textValue) Set(text string) error {
	v.text = text
	return nil
}

// Type implements pflag.Value.
func (v *textValue) Type() string { return v.kind }

// offer gives a command the flags of some groups of settings.
func offer(cmd *cobra.Command, groups ...config.Group) {
	for _, s := range config.GroupSettings(groups...) {
		offerSetting(cmd, s)
	}
}

// offerAll gives a command the flag of every setting.
func offerAll(cmd *cobra.Command) {
	for _, s := range config.Settings() {
		offerSetting(cmd, s)
	}
}

// offerOne gives a command the flag of one setting.
func offerOne(cmd *cobra.Command, name string) {
	if s, ok := config.Find(name); ok {
		offerSetting(cmd, s)
	}
}

func offerSetting(cmd *cobra.Command, s config.Setting) {
	f := cmd.Flags().VarPF(&textValue{text: s.Default, kind: s.Type()}, s.Name, "", strings.ReplaceAll(s.Doc, "`", "'"))
	if s.Type() == "bool" {
		f.NoOptDefVal = "true"
	}
}

// load returns the effective configuration of a command. What the command does
// not offer is not judged, and keeps its default.
func load(cmd *cobra.Command, p process) (*config.Loaded, error) {
	in := config.Input{Flags: make(map[string]string), Env: p.env}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		v, ok := f.Value.(*textValue)
		if !ok {
			return
		}
		in.Used = append(in.Used, f.Name)
		if f.Changed {
			in.Flags[f.Name] = v.text
		}
	})
	file, err := cmd.Flags().GetString(config.FileSetting)
	if err != nil {
		return nil, fmt.Errorf("read flag --%s: %w", config.FileSetting, err)
	}
	in.File = file
	l, err := config.Load(in)
	return l, asUsage(err)
}
