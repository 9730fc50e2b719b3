"""The site's Grafana dashboards; `python -m dashboards.build` writes `deployments/grafana`."""
