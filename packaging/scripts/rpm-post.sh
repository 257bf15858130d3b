# The number of this package's versions that are there: 1 is a first installation, more an upgrade or downgrade. Not started
# at the first: on these systems the administrator does that.
users_and_folders
if [ "$1" = 1 ]; then preset; fi
reload
# Here, not in the old package's last script: that one comes after this and knows nothing of this version.
if [ "$1" != 1 ]; then restart_if_running; fi
report_leftovers
exit 0
