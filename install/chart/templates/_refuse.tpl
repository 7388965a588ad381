{{/*
sluice.refuse fails with all values that Sluice cannot honour, each by name and with the reason.
*/}}
{{- define "sluice.refuse" -}}
{{- $v := .v -}}
{{- $said := list -}}
{{- if $v.ambient.enabled -}}
{{- $said = append $said "ambient.enabled: Sluice redirects sidecars and does not do ambient mode; keep istio-cni where ztunnel runs" -}}
{{- end -}}
{{- $profile := coalesce $v.profile $v.global.profile | default "" -}}
{{- if eq $profile "ambient" -}}
{{- $said = append $said "profile ambient: Sluice redirects sidecars and does not do ambient mode; keep istio-cni where ztunnel runs" -}}
{{- else if not (has $profile (list "" "default" "minimal" "empty" "demo" "preview" "remote" "stable")) -}}
{{- $said = append $said (printf "profile %q: not a profile of Istio's" $profile) -}}
{{- end -}}
{{- $hub := $v.hub | default $v.global.hub -}}
{{- range list "docker.io/istio" "istio" "gcr.io/istio-" "registry.istio.io" -}}
{{- if or (eq $hub .) (hasPrefix (printf "%s/" .) $hub) (and (hasSuffix "-" .) (hasPrefix . $hub)) -}}
{{- $said = append $said (printf "hub %q: holds Istio's images; leave hub and tag out, or name the registry that has Sluice's image" $hub) -}}
{{- end -}}
{{- end -}}
{{- if contains "install-cni" $v.image -}}
{{- $said = append $said (printf "image %q: is Istio's installer; leave it out, or name Sluice's image" $v.image) -}}
{{- end -}}
{{- if not (has ($v.variant | default $v.global.variant | default "") (list "" "distroless")) -}}
{{- $said = append $said (printf "variant %q: there is one image, with no shell in it; leave it out" ($v.variant | default $v.global.variant)) -}}
{{- end -}}
{{- if or $v.repair.hub $v.repair.tag -}}
{{- $said = append $said "repair.hub and repair.tag: there is no image of its own for repairs, neither here nor in istio-cni; leave them out" -}}
{{- end -}}
{{- if and $v.global.nativeNftables (eq $v.backend "legacy") -}}
{{- $said = append $said "backend legacy: contradicts global.nativeNftables" -}}
{{- end -}}
{{- if and $v.istioOwnedCNIConfig (not $v.chained) -}}
{{- $said = append $said "istioOwnedCNIConfig: copies the primary configuration with the plugin in its chain, and chained is false" -}}
{{- end -}}
{{- if and (not $v.chained) (hasSuffix ".conflist" $v.cniConfFileName) -}}
{{- $said = append $said (printf "cniConfFileName %s: holds a single plugin where chained is false; want a name that ends in .conf" $v.cniConfFileName) -}}
{{- end -}}
{{- if and (not $v.mountNetns) (not $v.searchProc) $v.audit.enabled -}}
{{- $said = append $said "mountNetns and searchProc: audit finds no network namespace without both; turn audit.enabled off as well" -}}
{{- end -}}
{{- range $key, $setting := dict "apiBudget" (list $v.apiBudget "2m") "apiTryTimeout" (list $v.apiTryTimeout "2m")
  "audit.interval" (list $v.audit.interval "24h") "resyncInterval" (list $v.resyncInterval "24h")
  "uninstallTimeout" (list $v.uninstallTimeout "24h") -}}
{{- $time := include "sluice.milliseconds" (first $setting) | float64 -}}
{{- $given := not (kindIs "invalid" (first $setting)) -}}
{{- if and $given (or (lt $time 100.0) (gt $time (include "sluice.milliseconds" (last $setting) | float64))) -}}
{{- $said = append $said (printf "%s %v: want a duration from 100ms to %s" $key (first $setting) (last $setting)) -}}
{{- end -}}
{{- end -}}
{{- if ge (include "sluice.milliseconds" $v.uninstallTimeout | float64) (mulf $v.terminationGracePeriodSeconds 1000) -}}
{{- $said = append $said (printf "uninstallTimeout %v: the pod is killed after terminationGracePeriodSeconds, %d" $v.uninstallTimeout (int $v.terminationGracePeriodSeconds)) -}}
{{- end -}}
{{- $surge := (($v.updateStrategy | default dict).rollingUpdate | default dict).maxSurge | default "" -}}
{{- if not (has $surge (list "" "0" "0%")) -}}
{{- $said = append $said (printf "updateStrategy.rollingUpdate.maxSurge %v: two agents on one node would overwrite each other without end; leave it out" $surge) -}}
{{- end -}}
{{- if and $v.monitoringPort (eq (int $v.monitoringPort) (int $v.healthPort)) -}}
{{- $said = append $said (printf "monitoringPort %d: is healthPort too; want two ports, as 15014 and 8000, or monitoringPort 0 for none" (int $v.monitoringPort)) -}}
{{- end -}}
{{- range $key := list "cniBinDir" "cniConfDir" "cniCacheDir" "cniNetnsDir" -}}
{{- $dir := clean (index $v $key | default "/x") -}}
{{- if has $dir (list "/" "/boot" "/dev" "/etc" "/home" "/lib" "/lib64" "/opt" "/proc" "/root" "/run" "/sbin" "/sys" "/tmp" "/usr" "/var" "/var/lib" "/var/run") -}}
{{- $said = append $said (printf "%s %s: is a directory of the whole node, which the agent would be given; want one of CNI's own, as /opt/cni/bin or /etc/cni/net.d" $key (index $v $key)) -}}
{{- end -}}
{{- end -}}
{{- $limit := (($v.resources | default $v.global.defaultResources | default dict).limits | default dict).memory -}}
{{- if $limit -}}
{{- $bytes := include "sluice.bytes" $limit | float64 -}}
{{- if lt $bytes 134217728.0 -}}
{{- $said = append $said (printf "resources.limits.memory %v: the agent would be killed for want of memory; want 128Mi at least, or no limit" $limit) -}}
{{- end -}}
{{- end -}}
{{- $settings := .Files.Get "files/settings.yaml" | fromYaml -}}
{{- range $name, $_ := $v.env -}}
{{- if hasKey $settings.refused $name -}}
{{- $said = append $said (printf "env.%s: %s" $name (index $settings.refused $name)) -}}
{{- else if hasKey $settings.keys $name -}}
{{- $said = append $said (printf "env.%s: %s" $name (index $settings.keys $name)) -}}
{{- end -}}
{{- end -}}
{{- if $said -}}
{{- fail (printf "values that Sluice does not take:\n  values.%s" (join "\n  values." $said)) -}}
{{- end -}}
{{- end -}}

{{/* sluice.refuseNull fails with all values that templates need and that are null, by name. */}}
{{- define "sluice.refuseNull" -}}
{{- $v := . -}}
{{- $said := list -}}
{{- range $key := list "ambient" "audit" "daemonSetLabels" "dashboard" "global" "image" "logging" "networkPolicy" "podAnnotations"
  "podLabels" "podMonitor" "prometheusRule" "repair" "resourceQuotas" "serve" "terminationGracePeriodSeconds" "uninstallHook" -}}
{{- if kindIs "invalid" (index $v $key) -}}{{- $said = append $said $key -}}{{- end -}}
{{- end -}}
{{- range $key := list "hub" "logging" "networkPolicy" -}}
{{- if and $v.global (kindIs "invalid" (index $v.global $key)) -}}{{- $said = append $said (printf "global.%s" $key) -}}{{- end -}}
{{- end -}}
{{- if $said -}}
{{- fail (printf "values that Sluice does not take:\n  values.%s: is null; leave it out for its default" (join ": is null; leave it out for its default\n  values." $said)) -}}
{{- end -}}
{{- end -}}

{{/* sluice.milliseconds takes a duration, as 1m30s or 1.5m. */}}
{{- define "sluice.milliseconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9.]+[a-z]+" (toString .) -1 -}}
{{- $unit := regexFind "[a-z]+" . -}}
{{- $sum = addf $sum (mulf (trimSuffix $unit .) (index $units $unit)) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{/* sluice.bytes takes a quantity of memory, as 256Mi, 1e9 or 1.5G; what is none counts as 0. */}}
{{- define "sluice.bytes" -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "m" 0.001 -}}
{{- $text := . | toString -}}
{{- $unit := regexFind "[A-Za-z]+$" $text -}}
{{- $number := trimSuffix $unit $text -}}
{{- if and (hasKey $units $unit) (regexMatch "^[0-9.]+([eE][+]?[0-9]+)?$" $number) -}}
{{- mulf (float64 $number) (index $units $unit) -}}
{{- else -}}
0
{{- end -}}
{{- end -}}
